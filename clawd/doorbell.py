"""A "look now" between two processes of one daemon: a named pipe in the run folder.

Guarantees that a ring wakes the waiter at once if both are alive. A lost ring costs a second, never more: whoever waits
looks at the store anyway when the time is up. A pipe, unlike a socket, has no limit on the length of its path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from pathlib import Path


class Doorbell:
    """The waiting side. Only its owner may `wait`; `ring` is for everybody else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Read and write: a pipe that has no writer would be readable for ever.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, timeout_s: float) -> bool:
        """Until someone rings or `timeout_s` is over; whether someone rang. Rings that came together count as one."""
        readable, _, _ = select.select([self._descriptor], [], [], timeout_s)
        if readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._descriptor, 4096)
        return bool(readable)

    def close(self) -> None:
        os.close(self._descriptor)


def ring(path: Path) -> bool:
    """Wake whoever waits at `path`; whether there was anybody to hear it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return False
        raise
    try:
        os.write(descriptor, b"!")
    except BlockingIOError:
        pass  # full of rings: it will be heard
    finally:
        os.close(descriptor)
    return True
