"""What `clawd status` shows. The figures are the server's, from the store; nothing is counted here."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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
    if not address.answers(daemon.host, daemon.port, "/readyz", TIMEOUT_S):
        return Status(folder, daemon, False, None, "the server isn't ready: it is starting, or busy beyond measure")
    try:
        server = address.get_object(daemon.host, daemon.port, STATUS_PATH, TIMEOUT_S)
    except NotRunning as error:
        return Status(folder, daemon, True, None, str(error))
    return Status(folder, daemon, True, server, None)


def show(status: Status, console: Console | None = None) -> None:
    console = console or Console()
    if status.daemon is None:
        console.print(f"clawd isn't running on {escape(str(status.folder.root))}: start it with `clawd start`")
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
        for part in _renderables(status.server):
            console.print(part)


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


def _renderables(server: Mapping[str, Any]) -> Iterator[Table]:
    """The server's object as it is: lists of objects become tables, the rest one line per value."""
    lines = Table.grid(padding=(0, 2))
    tables = []
    for key, value in _flat(server):
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            tables.append(_table(key, value))
        else:
            lines.add_row(f"[bold]{escape(key)}[/]", escape(_text(value)))
    yield lines
    yield from tables


def _flat(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = f"{before}{key}".replace("_", " ")
        if isinstance(value, dict):
            yield from _flat(value, f"{name} ")
        else:
            yield name, value


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    flat = [dict(_flat(row)) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    table = Table(*columns, title=title, title_justify="left")
    for row in flat:
        table.add_row(*(escape(_text(row.get(column))) for column in columns))
    return table


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return str(value)
