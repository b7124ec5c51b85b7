"""People first: a process of the learner stands still while the server answers somebody, up to a total.

While a process is `watching`, a thread looks whether somebody is present and says so to the main thread by a signal,
whose handler returns when nobody is any more. Python runs it between two of its own instructions: people wait for one
operation of torch, not for a micro-batch, and imports and reading files are places to pause, too. A child process is
stopped for the time. So pausing changes no number, only when it is computed. Loads no torch.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clawd import lifeline
from clawd.config import LearnSettings
from clawd.presence import VARIABLE, PresenceWatch

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.01
SIGNAL = signal.SIGUSR1


class Courtesy:
    """The pauses of one update. But for the thread that looks, for the main thread alone."""

    def __init__(self, pipe: Path | None = None, most_s: float = 0.0) -> None:
        """`pipe`: where the server tells whether people are present; none: nobody tells, so there is no pause.

        `most_s`: all pauses together; then the work goes on beside people.
        """
        self.paused_s = 0.0
        self._most_s = most_s
        self._watch = None if pipe is None or most_s == 0 else _watch(pipe)
        self._is_pausing = False
        self._child: subprocess.Popen[str] | None = None

    @classmethod
    def of(cls, settings: LearnSettings) -> Courtesy:
        """As the settings say. Whoever starts the process has named the pipe, if there is one."""
        pipe = os.environ.get(VARIABLE)
        if pipe is None or not settings.pause_when_busy:
            return cls()
        return cls(Path(pipe), settings.max_pause_s)

    @property
    def left_s(self) -> float:
        """Pause that may still come."""
        return 0.0 if self._watch is None else max(0.0, self._most_s - self.paused_s)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Pause wherever the block is when people come. To be entered in the main thread."""
        if self._watch is None:
            yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._look, args=(over,), name="courtesy", daemon=True)
        before = signal.signal(SIGNAL, lambda *_: self.give_way())
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            signal.signal(SIGNAL, before)

    def _look(self, over: threading.Event) -> None:
        main = threading.main_thread().ident
        assert self._watch is not None
        assert main is not None
        while self.left_s > 0 and not over.wait(LOOK_EVERY_S):
            if not self._is_pausing and self._watch.present():
                signal.pthread_kill(main, SIGNAL)

    def give_way(self) -> None:
        """Return when nobody is being answered, or when the pauses are used up."""
        if self._watch is None or self._is_pausing or self.left_s == 0 or not self._watch.present():
            return
        self._is_pausing = True
        began = time.monotonic()
        self._signal_child(signal.SIGSTOP)
        self._watch.wait_for_absence(self.left_s)
        self._signal_child(signal.SIGCONT)
        self.paused_s += time.monotonic() - began
        self._is_pausing = False

    def run(self, command: Sequence[str], timeout_s: float, question: str = "") -> str:
        """Run a child process of this one, which stands still when this does; what it printed.

        If this process ends, so does the child, stopped or not, as it ties its life to it (`clawd.lifeline`).

        Raises:
            subprocess.CalledProcessError, subprocess.TimeoutExpired: as `subprocess.run`; pauses don't count.
        """
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=lifeline.environment()
        ) as process:
            self._child = process
            try:
                output, errors = process.communicate(question, timeout=timeout_s + self.left_s)
            except BaseException:
                process.kill()
                raise
            finally:
                self._child = None
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, output, errors)
        return output

    def _signal_child(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send_signal(number)


def _watch(pipe: Path) -> PresenceWatch | None:
    try:
        return PresenceWatch(pipe)
    except OSError as error:  # no reason to lose an update
        log.warning("no pause is made for people: %s", error)
        return None
