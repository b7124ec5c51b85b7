"""Whether people are being answered, as the server tells whoever would get in its way: a named pipe in the run folder.

Present means that somebody holds the pipe open for writing; nothing is ever written to it. So the sign goes with its
owner: the kernel closes the pipe of a process however that ends, and nobody waits for a server that is gone.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
from pathlib import Path

log = logging.getLogger(__name__)

VARIABLE = "_CLAWD_PRESENCE"  # tells a child process the pipe's path; no setting, so not named like one


class Presence:
    """The telling side. Not for concurrent use."""

    def __init__(self, path: Path) -> None:
        """Nobody is present at first. Raises OSError if the pipe can't be made."""
        self._path = path
        _make(path)
        self._descriptor: int | None = None  # none: absent

    def tell(self, present: bool) -> None:
        """Never raises: that updates don't stand back is no reason not to serve."""
        if present == (self._descriptor is not None):
            return
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            return
        try:
            # Read and write: to write alone can't be begun while nobody reads.
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            log.warning("updates don't stand back for people: %s", error)

    def close(self) -> None:
        self.tell(False)


class PresenceWatch:
    """The side that looks; there may be several."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the pipe can't be made or opened."""
        _make(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._descriptor, 0)  # a hang-up is told unasked

    def present(self) -> bool:
        try:
            os.read(self._descriptor, 1)  # of a pipe without a writer: its end, at once
        except BlockingIOError:
            return True
        return False

    def wait_for_absence(self, timeout_s: float) -> bool:
        """Until nobody is present or `timeout_s` is over; whether nobody is. To be called when somebody was."""
        return bool(self._poll.poll(math.ceil(timeout_s * 1000)))

    def close(self) -> None:
        os.close(self._descriptor)


def _make(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
