"""The command `clawd`: one file of this folder per family of verbs. Loads neither torch nor llama.cpp."""

from __future__ import annotations

import os
import sys

import typer

from clawd import __version__
from clawd.cli import (
    ablate,
    adapter_merge,
    adapters,
    bench,
    card,
    connect,
    demo,
    judge,
    learn,
    life,
    personalize,
    settings,
    train,
    users,
)
from clawd.daemon.logs import MESSAGE_PREFIX
from clawd.errors import ClawdError

app = typer.Typer(
    name="clawd",
    help="Serves a local model, learns from what follows each turn, and swaps the result in without a pause.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clawd {__version__}")
        raise typer.Exit


@app.callback()
def clawd(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    del version  # its callback has acted on it


life.add_to(app)
settings.add_to(app)
users.add_to(app)
adapters.add_to(app)
adapter_merge.add_to(adapters.adapters)
card.add_to(adapters.adapters)
train.add_to(app)
learn.add_to(app)
connect.add_to(app)
demo.add_to(app)
judge.add_to(app)
bench.add_to(app)
ablate.add_to(bench.bench)
personalize.add_to(bench.bench)


def main() -> None:
    """Run the command; a `ClawdError` becomes its text on stderr and its exit status."""
    os.umask(0o077)  # whatever a command makes holds conversations or keys
    try:
        app()
    except ClawdError as error:
        print(f"{MESSAGE_PREFIX}{error}", file=sys.stderr)
        sys.exit(error.exit_status)
