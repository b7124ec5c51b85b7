"""start, stop, status."""

from __future__ import annotations

import json
import sys

import typer

from clawd import config
from clawd.cli import status_view
from clawd.daemon import control
from clawd.daemon.supervisor import Daemon
from clawd.errors import NotRunning
from clawd.paths import DataFolder

TAKES_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
SETTINGS_EPILOG = (
    "Every setting is also a flag: `--server.port 31000`, `--learn.enabled false`, `--model.path FILE`; "
    "`clawd config` lists them all."
)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=TAKES_SETTINGS, epilog=SETTINGS_EPILOG)(start)
    app.command()(stop)
    app.command()(status)


def start(
    context: typer.Context,
    detach: bool = typer.Option(False, "--detach", help="Start in the background; return when it is ready."),
    quiet: bool = typer.Option(False, "--quiet", help="Log to files only, not to the terminal."),
) -> None:
    """Start the daemon: the server and the learner, in the foreground until Ctrl-C or SIGTERM."""
    folder = DataFolder.default()
    settings = config.load(folder, context.args)
    if detach:
        record = control.start_detached(folder, context.args)
        typer.echo(f"clawd is ready at {record.url}/v1 (process {record.pid})")
        return
    sys.exit(Daemon(folder, settings, terminal=None if quiet else sys.stderr).run())


def stop() -> None:
    """Stop the daemon: running requests get the grace time to end."""
    if control.stop(DataFolder.default()):
        typer.echo("clawd has stopped")
        return
    typer.echo("clawd didn't end in time and was killed; nothing that it had stored is lost", err=True)
    raise typer.Exit(1)


def status(
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Show what the daemon is doing; exit status 3 if none runs."""
    found = status_view.look(DataFolder.default())
    if as_json:
        typer.echo(json.dumps(found.as_object(), ensure_ascii=False))
    else:
        status_view.show(found)
    if not found.running:
        raise typer.Exit(NotRunning.exit_status)
