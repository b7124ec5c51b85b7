"""The daemon's record in the data folder: who runs, since when, where it listens. Written by the daemon alone.

A record may be stale, after a kill -9 for one: `running` believes it only if that very process is still alive.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from clawd.paths import DataFolder, write_privately

ProcessState = Literal["waiting", "running", "restarting", "ended"]


class ProcessRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    state: ProcessState
    pid: int | None  # none: it isn't running now
    restarts: int
    last_exit: int | None  # none: it has never ended; -N: ended by signal N
    log: str


class DaemonRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    pid: int
    pid_started: int  # `process_started(pid)`: tells a reused pid from ours
    started_at: float  # Unix seconds
    ready_at: float | None  # Unix seconds of the first readiness; none: not yet
    host: str
    port: int
    url: str  # base URL for clients on this machine, without /v1
    version: str
    stop_within_s: float  # longest time from SIGTERM to the end
    processes: list[ProcessRecord]


def write(folder: DataFolder, record: DaemonRecord) -> None:
    write_privately(folder.daemon_file, record.model_dump_json())


def remove(folder: DataFolder) -> None:
    """At a clean end. The resolved settings go too: they may hold secrets."""
    folder.daemon_file.unlink(missing_ok=True)
    folder.settings_file.unlink(missing_ok=True)
    folder.owner_key_file.unlink(missing_ok=True)


def process_started(pid: int) -> int | None:
    """When process `pid` began, in clock ticks since boot (no clock adjustment changes that); none if it has ended."""
    try:
        # "pid (name) state …": the name may hold anything, so count from its end. proc_pid_stat(5), fields 3 and 22.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def is_alive(record: DaemonRecord) -> bool:
    return process_started(record.pid) == record.pid_started


def running(folder: DataFolder) -> DaemonRecord | None:
    """The record of the daemon that runs on `folder` now; none if none does."""
    try:
        record = DaemonRecord.model_validate_json(folder.daemon_file.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None  # never started, or left by another version: its process, if any, holds the lock all the same
    return record if is_alive(record) else None
