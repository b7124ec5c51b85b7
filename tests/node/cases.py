"""Runs one case of a JavaScript client to its end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.node.installed import HERE, installed


def run_case(program: str, url: str, key: str, home: Path, case: str) -> Any:
    """What the case returned. It must have reached nothing but this machine."""
    clients = installed()
    refused = home / "refused.txt"
    done = subprocess.run(
        [str(clients.node), str(HERE / program), case, url],
        env=clients.environment(home, refused, CLIENTS=str(clients.folder), KEY=key),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not refused.exists(), refused.read_text()
    return json.loads(done.stdout)
