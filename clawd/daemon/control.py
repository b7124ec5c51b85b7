"""What one does with a daemon from outside: start it in the background, stop it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from clawd import errors
from clawd.daemon import record
from clawd.daemon.logs import last_words, open_for_appending
from clawd.daemon.record import DaemonRecord
from clawd.paths import HOME_VARIABLE, DataFolder

POLL_S = 0.05
STOP_MARGIN_S = 2.0


def start_detached(folder: DataFolder, flags: Sequence[str]) -> DaemonRecord:
    """Start a daemon in a session of its own and return when it is ready.

    Raises:
        ClawdError: it ended instead; with its exit status, and its own words.
    """
    folder.create()
    output = folder.logs / "start.log"
    output.unlink(missing_ok=True)
    descriptor = open_for_appending(output)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "clawd", "start", "--quiet", *flags],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=_environment_for(folder),
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    try:
        return _wait_until_ready(folder, process)
    except BaseException:  # also Ctrl-C: who gives up waiting doesn't want it in the background
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait()
        raise


def _environment_for(folder: DataFolder) -> dict[str, str]:
    """That makes a new process find `folder`, whichever this one's default is."""
    if folder == DataFolder.default():
        return dict(os.environ)
    return {**os.environ, HOME_VARIABLE: str(folder.root)}


def _wait_until_ready(folder: DataFolder, process: subprocess.Popen[bytes]) -> DaemonRecord:
    while process.poll() is None:
        found = record.running(folder)
        if found is not None and found.pid == process.pid and found.ready_at is not None:
            process.returncode = 0  # it is on its own now: forget it without waiting for its end
            return found
        time.sleep(POLL_S)
    words = last_words((folder.logs / "start.log").read_text(errors="replace"))
    raise _error_of(process.returncode, words or f"The daemon ended with status {process.returncode}.")


def _error_of(status: int, words: str) -> errors.ClawdError:
    """An error with the exit status that the daemon ended with."""
    error = errors.ClawdError(words)
    error.exit_status = status if status > 0 else 1
    return error


def stop(folder: DataFolder) -> bool:
    """Ask the daemon on `folder` to end and wait; kill it if it doesn't in its own time. Whether it ended by itself.

    Raises:
        NotRunning: none runs.
    """
    found = record.running(folder)
    if found is None:
        raise errors.NotRunning(f"No daemon runs on {folder.root}.")
    _send(found, signal.SIGTERM)
    if _wait_until_gone(found, found.stop_within_s + STOP_MARGIN_S):
        return True
    _send(found, signal.SIGKILL)  # its children go with it
    _wait_until_gone(found, STOP_MARGIN_S)
    return False


def _send(daemon: DaemonRecord, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(daemon.pid, number)


def _wait_until_gone(daemon: DaemonRecord, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while record.is_alive(daemon):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
