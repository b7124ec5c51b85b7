"""The command as a person runs it: a process of its own, on a data folder of the test's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


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
