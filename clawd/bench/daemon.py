"""A throw-away daemon for a benchmark: a folder of its own, a free port, real processes; nobody else's is touched."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clawd.daemon.control import start_detached, stop
from clawd.paths import DataFolder


@dataclass(frozen=True)
class ThrowAwayDaemon:
    folder: DataFolder
    url: str
    began_at: float  # monotonic time at which it was asked to start
    ready_s: float  # from then until `clawd start` said that it is ready


@contextmanager
def throw_away_daemon(flags: Sequence[str] = ()) -> Iterator[ThrowAwayDaemon]:
    """With defaults but for `flags`. Its folder goes with it, unless something failed: then it is left for a look."""
    folder = DataFolder(Path(tempfile.mkdtemp(prefix="clawd-bench-")))
    began_at = time.monotonic()
    daemon = start_detached(folder, ["--server.port", "0", *flags])
    failed = False
    try:
        yield ThrowAwayDaemon(folder, daemon.url, began_at, time.monotonic() - began_at)
    except Exception:
        failed = True
        raise
    finally:
        stop(folder)
        if failed:
            print(f"The daemon's folder, with its logs: {folder.root}", file=sys.stderr)
        else:
            shutil.rmtree(folder.root)
