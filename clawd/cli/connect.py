"""connect openclaw: write clawd's provider entry into OpenClaw's config."""

from __future__ import annotations

import difflib
import os
import re
import stat
import time
from pathlib import Path
from typing import Annotated

import typer

from clawd.cli import status_view
from clawd.cli.status_view import Status
from clawd.connect.openclaw import MODEL, Served, connect, kept_tools, stored_key, too_small
from clawd.errors import ConfigError, NotRunning, UnknownName
from clawd.paths import DataFolder, write_privately
from clawd.store import Store

ANY_KEY = "clawd"  # OpenClaw wants one; without keyed users any is taken for `default`
NEW_KEY = "clawd-told-when-written"

SECRET = re.compile(
    r"""((?:api[_-]?key|token|secret|password|authorization)["']?\s*:\s*)("[^"\n]*"|'[^'\n]*')""", re.IGNORECASE
)

connections = typer.Typer(help="Tell other programs about clawd.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    app.add_typer(connections, name="connect")


@connections.callback()
def _connect() -> None:
    """Tell other programs about clawd."""


@connections.command()
def openclaw(
    dry_run: bool = typer.Option(False, "--dry-run", help="Show what would change; write nothing."),
    user: str | None = typer.Option(None, "--user", help="Whose key OpenClaw gets; a new name is added."),
    lean: bool = typer.Option(False, "--lean", help="Also set the profile whose prompt fits 8k tokens."),
    config: Annotated[
        Path | None, typer.Option("--config", help="OpenClaw's config; else where OpenClaw looks for it.")
    ] = None,
) -> None:
    """Write clawd's provider entry into OpenClaw's config: address, key, context, session headers.

    The running server says what it serves. Shows the change and keeps a copy of the old file; nothing else in it is
    touched, and never what OpenClaw may do.
    """
    folder = DataFolder.default()
    status = status_view.look(folder)
    path = (config or default_config()).expanduser().resolve()
    old = path.read_bytes().decode() if path.exists() else ""
    connect(old, _served(status, NEW_KEY), lean=lean)  # a file that can't be changed is told before a user is added
    if trouble := too_small(_served(status, "").context_tokens, lean=lean):
        typer.echo(trouble, err=True)
    if lean and (why := kept_tools(old)):
        typer.echo(f"The tools stay as they are: {why}. The lean prompt is counted with exec, read, write, edit.")
    new = connect(old, _served(status, _key(folder, user, old, dry_run=dry_run)), lean=lean)
    if new == old:
        typer.echo(f"{path} says all of it already")
        return
    typer.echo(difference(old, new, path), nl=False)
    if dry_run:
        typer.echo("Nothing was written.")
        return
    copy = _write(path, new)
    kept = f"; the old file is {copy}" if copy else ""
    typer.echo(f"Written{kept}. `openclaw models set {MODEL}` makes it OpenClaw's model.")


def default_config() -> Path:
    """Where OpenClaw looks: OPENCLAW_CONFIG_PATH, else openclaw.json in OPENCLAW_STATE_DIR or ~/.openclaw."""
    if named := os.environ.get("OPENCLAW_CONFIG_PATH"):
        return Path(named)
    return Path(os.environ.get("OPENCLAW_STATE_DIR") or "~/.openclaw") / "openclaw.json"


def difference(old: str, new: str, path: Path) -> str:
    """A unified diff in which no secret can be read."""
    lines = difflib.unified_diff(_hidden(old), _hidden(new), str(path), f"{path} (new)")
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _hidden(text: str) -> list[str]:
    return SECRET.sub(r'\1"…"', text).splitlines(keepends=True)


def _served(status: Status, key: str) -> Served:
    """Raises NotRunning: only a running server can say what it serves."""
    model = (status.server or {}).get("model")
    if status.daemon is None or not model:
        raise NotRunning(
            f"No clawd answers for {status.folder.root}: start it with `clawd start`; it says what it serves."
        )
    return Served(f"{status.daemon.url}/v1", key, int(model["context_tokens"]), int(model["answer_tokens"]))


def _key(folder: DataFolder, name: str | None, old: str, *, dry_run: bool) -> str:
    """The key to write: the one that stands there if it is right, a new user's, or one that is asked for.

    Raises:
        ConfigError: there are keys, and it isn't said whose to take; or the key that was typed is another's.
        NameRefused: the new user's name can't be one.
    """
    stored = stored_key(old)
    with Store(folder.database) as store:
        holder = store.people.with_key(stored) if stored else None
        if name is None:
            if holder is not None or not any(user.has_key for user in store.people.all()):
                return stored or ANY_KEY
            raise ConfigError("There are users with keys: say with --user NAME whose OpenClaw is to have.")
        try:
            known = store.people.named(name)
        except UnknownName:
            return NEW_KEY if dry_run else store.people.add(name)[1]
        if stored and holder == known:
            return stored
        if not known.has_key:
            raise ConfigError(f"{name!r} has no key and needs none: leave --user out.")
        if dry_run:
            return NEW_KEY
        typed: str = typer.prompt(f"API key of {name} (told when the user was added)", hide_input=True)
        if store.people.with_key(typed.strip()) != known:
            raise ConfigError(f"That isn't the key of {name!r}.")
        return typed.strip()


def _write(path: Path, text: str) -> Path | None:
    """Replace the file, keeping who may read it; the copy of the old one, if there was one."""
    copy = None
    mode = 0o600
    if path.exists():
        mode = stat.S_IMODE(path.stat().st_mode)
        copy = path.with_name(f"{path.name}.before-clawd-{time.strftime('%Y%m%d-%H%M%S')}")
        write_privately(copy, path.read_bytes().decode())
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_privately(path, text)
    path.chmod(mode)
    return copy
