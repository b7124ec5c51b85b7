"""What `clawd status` shows. The figures are the server's, from the store; nothing is counted here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clawd.daemon import address, record
from clawd.daemon.child import describe_exit
from clawd.daemon.record import DaemonRecord
from clawd.errors import NotRunning
from clawd.paths import DataFolder

STATUS_PATH = "/clawd/v1/status"
TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Status:
    folder: DataFolder
    daemon: DaemonRecord | None  # none: no daemon runs
    ready: bool
    server: dict[str, Any] | None  # none: it doesn't answer
    trouble: str | None  # why not

    @property
    def running(self) -> bool:
        return self.daemon is not None

    def as_object(self) -> dict[str, Any]:
        daemon = self.daemon
        return {
            "running": self.running,
            "home": str(self.folder.root),
            "pid": daemon.pid if daemon else None,
            "url": daemon.url if daemon else None,
            "version": daemon.version if daemon else None,
            "started_at": daemon.started_at if daemon else None,
            "ready_at": daemon.ready_at if daemon else None,
            "ready": self.ready,
            "processes": [process.model_dump() for process in daemon.processes] if daemon else [],
            "server": self.server,
            "trouble": self.trouble,
        }


def look(folder: DataFolder) -> Status:
    daemon = record.running(folder)
    if daemon is None:
        return Status(folder, None, False, None, None)
    key = folder.owner_key()
    if not address.answers(daemon.host, daemon.port, "/readyz", TIMEOUT_S, key):
        return Status(folder, daemon, False, None, "the server isn't ready: it is starting, or busy beyond measure")
    try:
        server = address.get_object(daemon.host, daemon.port, STATUS_PATH, TIMEOUT_S, key)
    except NotRunning as error:
        return Status(folder, daemon, True, None, str(error))
    return Status(folder, daemon, True, server, None)


def show(status: Status, console: Console | None = None) -> None:
    console = console or Console()
    if status.daemon is None:
        root = escape(str(status.folder.root))
        console.print(f"clawd isn't running on {root}: start it with `clawd start`", soft_wrap=True)
        return
    daemon = status.daemon
    state = "[green]ready[/]" if status.ready else "[yellow]not ready[/]"
    console.print(
        f"[bold]clawd {daemon.version}[/] {state} at {escape(daemon.url)}/v1, "
        f"process {daemon.pid}, up {duration(time.time() - daemon.started_at)}, "
        f"data in {escape(str(status.folder.root))}",
        soft_wrap=True,
    )
    console.print(_processes(daemon))
    if status.trouble:
        console.print(f"[yellow]{escape(status.trouble)}[/]", soft_wrap=True)
    if status.server is not None:
        console.print(_summary(status.server))
        console.print(_adapters(status.server.get("adapters", [])))


def duration(seconds: float) -> str:
    """`8 s`, `4 min`, `3 h 20 min`, `2 d 4 h`."""
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes // 60 % 24} h"


def _processes(daemon: DaemonRecord) -> Table:
    table = Table("process", "state", "pid", "restarts", "last end", title_justify="left")
    for process in daemon.processes:
        end = "" if process.last_exit is None else describe_exit(process.last_exit)
        table.add_row(process.name, process.state, str(process.pid or ""), str(process.restarts), end)
    return table


def _summary(server: Mapping[str, Any]) -> Table:
    """One line each: what is served, what goes on, what was said, who judges it. Nothing is made up."""
    model, engine, judge = (server.get(part, {}) for part in ("model", "engine", "judge"))
    turns = server.get("turns", {})
    lines = {
        "model": _joined(
            model.get("name"), model.get("path"), _counted(model.get("context_tokens"), "tokens of context")
        ),
        "requests": _joined(*(_counted(engine.get(key), key) for key in ("running", "waiting", "paused"))),
        "sessions": _tally(server.get("sessions", {}).get("by_evidence", {})) or "none yet",
        "turns": _joined(
            _tally(turns.get("main", {})) or "none yet", _counted(turns.get("side"), "side turns, not learnt from")
        ),
        "judge": _joined(judge.get("kind"), judge.get("note")),
        "llama.cpp": server.get("binding_note"),
        "ignored fields": _tally(server.get("ignored_fields", {})),
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")  # a path is told whole
    for name, text in lines.items():
        if text:
            table.add_row(f"[bold]{name}[/]", escape(text))
    return table


def _adapters(adapters: list[dict[str, Any]]) -> Table:
    table = Table("adapter", "serves", "samples", "scored turns", "not scored", "last update", "the next one waits for")
    for adapter in adapters:
        version = adapter.get("active_version")
        cells = (
            str(adapter.get("name")),
            f"v{version}" if version else "the bare base",
            f"{adapter.get('samples_waiting', 0)}/{adapter.get('samples_needed')}",
            str(adapter.get("scored", 0)),
            _tally(adapter.get("not_scored", {})),
            _last_update(adapter.get("last_update")),
            str(adapter.get("waits_for")),
        )
        table.add_row(*map(escape, cells))
    return table


def _last_update(update: Mapping[str, Any] | None) -> str:
    if update is None:
        return "none yet"
    return _joined(f"{update.get('number')} {update.get('state')}", update.get("reason"))


def _tally(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _counted(count: int | None, what: str) -> str | None:
    return None if count is None else f"{count} {what}"


def _joined(*parts: str | None) -> str:
    return "; ".join(part for part in parts if part)
