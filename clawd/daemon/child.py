"""One child process: start, notice its end, start again with growing pauses. Decides nothing about the daemon."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from clawd import lifeline
from clawd.daemon.logs import ChildLog
from clawd.daemon.record import ProcessRecord, ProcessState

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
HEALTHY_AFTER_S = 60.0


@dataclass(frozen=True)
class ChildSpec:
    name: str
    command: tuple[str, ...]
    descriptors: tuple[int, ...] = ()  # open in the child under the same numbers
    after_ready: bool = False  # start only when the server has answered once


def pause_s(failures: int) -> float:
    """How long to wait before the start after `failures` ends in a row: 1, 2, 4 … 30 seconds."""
    return min(FIRST_PAUSE_S * 2.0 ** (failures - 1), LONGEST_PAUSE_S)


class Child:
    """All times are seconds of the daemon's clock, given by the caller."""

    def __init__(self, spec: ChildSpec, child_log: ChildLog, environment: Mapping[str, str] | None = None) -> None:
        self.spec = spec
        self.log = child_log
        self.starts = 0
        self.failures = 0  # ends in a row without a minute of health between
        self.last_exit: int | None = None
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._due_at: float | None = None  # none: at once

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def is_due(self, now: float) -> bool:
        return self._process is None and (self._due_at is None or now >= self._due_at)

    def start(self, now: float) -> None:
        """Start it, in a process group of its own: a Ctrl-C in the terminal reaches the daemon, which passes it on."""
        descriptor = self.log.begin()
        try:
            self._process = subprocess.Popen(
                self.spec.command,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env=lifeline.environment({"PYTHONUNBUFFERED": "1", **self._environment}),
                pass_fds=self.spec.descriptors,
                process_group=0,
            )
        finally:
            os.close(descriptor)
        self.starts += 1
        self._started_at = now
        log.info("%s started, process %d", self.spec.name, self._process.pid)

    def reap(self, now: float) -> int | None:
        """The exit status if it has ended since the last call (-N: by signal N), and then the next start is planned."""
        if self._process is None:
            return None
        status = self._process.poll()
        if status is None:
            return None
        if now - self._started_at >= HEALTHY_AFTER_S:
            self.failures = 0
        self._process = None
        self.last_exit = status
        self.failures += 1
        self._due_at = now + pause_s(self.failures)
        self.log.show()
        return status

    def signal(self, number: signal.Signals) -> None:
        """TERM goes to the child, which ends its own children; KILL to its whole process group."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)

    def record(self, stopping: bool) -> ProcessRecord:
        state: ProcessState = "waiting"
        if self._process is not None:
            state = "running"
        elif self.starts:
            state = "ended" if stopping else "restarting"
        return ProcessRecord(
            name=self.spec.name,
            state=state,
            pid=self.pid,
            restarts=max(0, self.starts - 1),
            last_exit=self.last_exit,
            log=str(self.log.path),
        )


def describe_exit(status: int) -> str:
    """`exit status 1`, or `signal SIGSEGV`."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
