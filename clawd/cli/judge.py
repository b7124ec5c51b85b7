"""`clawd judge check`: how often the rules judge reads a reply right."""

from __future__ import annotations

from pathlib import Path

import typer

from clawd.cli.report_view import print_report

judge = typer.Typer(name="judge", help="What reads your replies.", no_args_is_help=True)

FILE = typer.Argument(
    None, help='JSON list of {"reply", "score", "correction"?}; by default the replies that come with clawd.'
)


def add_to(app: typer.Typer) -> None:
    app.add_typer(judge)


@judge.callback()
def _judge() -> None:
    """What reads your replies."""


@judge.command("check")
def check(
    file: Path | None = FILE, json_output: bool = typer.Option(False, "--json", help="Print one JSON object.")
) -> None:
    """How often the rules read labelled replies right, and which they misread.

    Ends with status 1 if a goal is missed.
    """
    from clawd.bench.judge.check import run  # noqa: PLC0415  `clawd --help` need not compile the rules

    print_report(run(file, f"clawd judge check{f' {file}' if file else ''}"), json_output)
