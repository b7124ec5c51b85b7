"""A binding that crashes as it is built: the server works without what crashes, and says so."""

from __future__ import annotations

import sys
from pathlib import Path

from clawd.model.binding import probe
from clawd.paths import DataFolder
from tests.server.live import live_server

CRASHES_WITH_EXTRA_BUFFERS = (
    "import os, signal, sys\nif '--no-extra-bufts' not in sys.argv: os.kill(os.getpid(), signal.SIGSEGV)"
)


def test_the_server_falls_back_and_status_explains(embedded_model: Path, tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "home")
    folder.create()
    program = tmp_path / "child.py"
    program.write_text(CRASHES_WITH_EXTRA_BUFFERS)
    probe(embedded_model, folder.cache, [sys.executable, str(program)])  # and remembered for the server's start
    with live_server(folder.root) as live:
        assert live.chat("hi").status_code == 200
        note = live.http.get("/clawd/v1/status").json()["binding_note"]
    assert "SIGSEGV" in note and "make rebuild-llama" in note
