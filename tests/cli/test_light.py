"""What must not be loaded: a light process stays light."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "llama_cpp", "transformers", "peft", "gguf", "fastapi", "uvicorn", "apscheduler", "openai"}


def loaded_by(program: str) -> set[str]:
    program += "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    "module", ["clawd.config", "clawd.daemon.supervisor", "clawd.lifeline", "clawd.doorbell", "clawd.presence"]
)
def test_import(module: str) -> None:
    assert loaded_by(f"import {module}") & (HEAVY | {"numpy", "sqlite_utils"}) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["start", "--help"], ["config", "--json"], ["status"]])
def test_command(arguments: list[str], tmp_path: object) -> None:
    program = f"""
import os, sys
os.environ["CLAWD_HOME"] = {str(tmp_path)!r}
sys.argv = ["clawd", *{arguments!r}]
from clawd.cli.app import main
try:
    main()
except SystemExit:
    pass
"""
    assert loaded_by(program) & HEAVY == set()


def test_heavy_ones_would_be_seen() -> None:
    assert "gguf" in loaded_by("import gguf.constants")
