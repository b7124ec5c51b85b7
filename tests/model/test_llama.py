"""How llama.cpp's threads wait for one another: told by OpenMP itself, as it reads its environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from clawd.model.llama import SPINS


def spins(**environment: str) -> str:
    """What OpenMP says of its spinning in a process that loads llama.cpp."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", "import clawd.model.llama"],
        env={**clean, **environment, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    )
    if "OPENMP DISPLAY ENVIRONMENT" not in done.stderr:
        pytest.skip("llama.cpp is built without OpenMP")
    found = re.search(r"GOMP_SPINCOUNT = '(\w+)'", done.stderr)
    if found is None:
        pytest.skip("this OpenMP is not GNU's")
    return found[1]


def test_threads_do_not_hold_on_to_a_core_for_long() -> None:
    assert spins() == SPINS


def test_a_person_may_have_it_otherwise() -> None:
    assert spins(GOMP_SPINCOUNT="5") == "5"
    assert spins(OMP_WAIT_POLICY="PASSIVE") == "0"
