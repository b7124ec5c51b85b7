"""A child's log file: what it prints goes straight into the file, so that it never waits for the daemon to read.

The daemon copies new lines to its own terminal from there. A file that has grown over its limit is moved aside when its
process starts; the newest `KEPT` are kept.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TextIO

ROTATE_BYTES = 10 * 2**20
KEPT = 3
TAIL_LINES = 20
MESSAGE_PREFIX = "clawd: "  # how the command line begins what it says before it ends on an error
MESSAGE = re.compile(rf"{MESSAGE_PREFIX}|\S+ \S+ ERROR \S+: ")  # that, or how a child logs it


def rotate(path: Path, limit_bytes: int = ROTATE_BYTES) -> None:
    """Move `path` to `path.1`, `path.1` to `path.2` and so on, if it is larger than `limit_bytes`."""
    if not path.exists() or path.stat().st_size <= limit_bytes:
        return
    for number in range(KEPT - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


def open_for_appending(path: Path) -> int:
    """A descriptor at the end of `path`; a new file is readable by its owner alone."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def last_words(text: str) -> str:
    """What a process that ended on an error had to say: its closing message, else the last lines."""
    lines = text.rstrip().splitlines()
    for index in range(len(lines) - 1, -1, -1):
        if found := MESSAGE.match(lines[index]):
            return "\n".join(lines[index:])[found.end() :]
    return "\n".join(lines[-TAIL_LINES:])


def line_prefix(name: str) -> str:
    return f"{name:<7} | "


class ChildLog:
    """One child's log, written by its present process and shown by the daemon."""

    def __init__(self, path: Path, name: str, terminal: TextIO | None = None) -> None:
        """`terminal`: where `show` copies new lines to; none: nowhere."""
        self.path = path
        self._prefix = line_prefix(name)
        self._terminal = terminal
        self._start = 0  # of the present process' part, in bytes
        self._shown = path.stat().st_size if path.exists() else 0  # what an earlier daemon left is no news

    def begin(self) -> int:
        """A descriptor for a new process; the caller closes it."""
        self.show()
        rotate(self.path)
        descriptor = open_for_appending(self.path)
        self._start = self._shown = os.fstat(descriptor).st_size
        return descriptor

    def since_start(self) -> str:
        """What the present, or last, process has printed."""
        return self._read_from(self._start).decode(errors="replace")

    def show(self) -> None:
        """Copy the complete lines that are new since the last call to the terminal."""
        if self._terminal is None or not self.path.exists():
            return
        complete, newline, _ = self._read_from(self._shown).rpartition(b"\n")
        if not newline:
            return
        self._shown += len(complete) + 1
        for line in complete.decode(errors="replace").splitlines():
            self._terminal.write(f"{self._prefix}{line}\n")
        self._terminal.flush()

    def _read_from(self, offset: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read()
