"""Updates in a child process of this machine, at low priority.

The child is killed with this process (`clawd.lifeline`), so start updates from a thread that lives as long as it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from clawd import lifeline
from clawd.config import LearnSettings
from clawd.presence import VARIABLE

log = logging.getLogger(__name__)

NEEDED = ("torch", "transformers", "peft", "safetensors")
PACKS = "bitsandbytes"
KILL_AFTER_S = 2.0
KEEP_LOG_BYTES = 10 * 2**20
COMMAND = (sys.executable, "-m", "clawd.learner.train.update")
PREPARE_COMMAND = (sys.executable, "-m", "clawd.learner.train.prepare")


class LocalUpdate:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> str | None:
        status = self._process.poll()
        if status is None:
            return None
        return f"exit status {status}" if status >= 0 else f"signal {_signal_name(-status)}"

    def cancel(self) -> None:
        """TERM, and KILL after a moment."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class LocalBackend:
    def __init__(
        self,
        log_file: Path,
        settings: LearnSettings,
        command: Sequence[str] = COMMAND,
        prepare_command: Sequence[str] = PREPARE_COMMAND,
        presence: Path | None = None,
    ) -> None:
        """`command` gets the job folder as its last argument; the output of both commands goes to `log_file`.

        `presence`: the pipe by which both know that people are being answered; none: they don't.
        """
        told = {} if presence is None or not settings.pause_when_busy else {VARIABLE: str(presence)}
        self._environment = {"PYTHONUNBUFFERED": "1", **told}
        self._log_file = log_file
        self._nice = settings.nice
        self._max_pause_s = settings.max_pause_s
        self._packs = settings.quantise == "nf4"
        self._formats = (settings.dtype, settings.device)
        self._command = tuple(command)
        self._prepare_command = tuple(prepare_command)
        self._preparing: subprocess.Popen[bytes] | None = None  # kept, so that its end is noticed and it is no zombie

    def unavailable(self) -> str | None:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            return f"{', '.join(missing)} can't be found: install clawd with its extra, `pip install 'clawd[train]'`"
        if self._packs and importlib.util.find_spec(PACKS) is None:
            return f"{PACKS} can't be found, which learn.quantise = nf4 needs: `pip install 'clawd[quant]'`"
        return None

    def prepare(self, base: Path, fingerprint: str, cache: Path) -> None:
        try:
            what = (str(base), fingerprint, str(cache), *self._formats, str(self._max_pause_s))
            self._preparing = self._run([*self._prepare_command, *what])
        except OSError as error:
            log.warning("the dense base is not made ahead: %s", error)

    def start(self, job: Path) -> LocalUpdate:
        return LocalUpdate(self._run([*self._command, str(job)]))

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        descriptor = self._open_log()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env=lifeline.environment(self._environment),
            )
        finally:
            os.close(descriptor)
        try:
            os.setpriority(os.PRIO_PROCESS, process.pid, self._nice)  # at once, before it has threads
        except OSError as error:
            log.warning("%s runs at normal priority: %s", " ".join(command), error)
        return process

    def _open_log(self) -> int:
        if self._log_file.exists() and self._log_file.stat().st_size > KEEP_LOG_BYTES:
            self._log_file.replace(self._log_file.with_name(self._log_file.name + ".1"))
        return os.open(self._log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
