"""Ties a child process's life to its parent's: when the parent is gone, however it went, so is the child.

The parent starts the child with `environment()`; the child calls `die_with_parent()` first of all. Linux does the rest
(prctl(2), PR_SET_PDEATHSIG). The signal is KILL: a child that outlives its daemon, even by a grace time, would hold the
port and the database while the next daemon starts. Whatever a KILL interrupts is built to survive it.

The kernel watches the *thread* that started the child: start children from a thread that lives as long as its process.
"""

from __future__ import annotations

import ctypes
import os
import signal

PARENT_VARIABLE = "_CLAWD_PARENT"  # no setting, so not named like one
PR_SET_PDEATHSIG = 1


def environment(changes: dict[str, str] | None = None) -> dict[str, str]:
    """The environment for a child of this process: the own one with `changes`, and who its parent is."""
    return {**os.environ, **(changes or {}), PARENT_VARIABLE: str(os.getpid())}


def die_with_parent() -> None:
    """Have this process killed when its parent ends; kill it now if that has happened already.

    The parent's id is taken out of the environment, so that this process's own children don't inherit the wrong one.

    Raises:
        OSError: the kernel refuses prctl.
    """
    expected = os.environ.pop(PARENT_VARIABLE, None)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    if expected is not None and os.getppid() != int(expected):
        # The parent ended before the kernel knew our wish: it won't tell us any more.
        os.kill(os.getpid(), signal.SIGKILL)
