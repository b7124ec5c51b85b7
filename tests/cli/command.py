"""The command as a person runs it: a process of its own, on a data folder of the test's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clawd.daemon import control, record
from clawd.paths import DataFolder


def clawd(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("CLAWD_")}
    return subprocess.run(
        [sys.executable, "-m", "clawd", *arguments],
        env={**clean, "CLAWD_HOME": str(home), "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@contextmanager
def detached_daemon(home: Path, *flags: str) -> Iterator[str]:
    """A real daemon on any free port, gone at the end whatever happens; gives what the command printed."""
    try:
        done = clawd(home, "start", "--detach", "--server.port", "0", *flags)
        assert done.returncode == 0, done.stderr
        yield done.stdout
    finally:
        if record.running(DataFolder(home)) is not None:
            control.stop(DataFolder(home))
