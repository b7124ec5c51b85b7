from __future__ import annotations

import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.doorbell import Doorbell, ring


@pytest.fixture
def bell(tmp_path: Path) -> Iterator[Doorbell]:
    made = Doorbell(tmp_path / "bell")
    yield made
    made.close()


def test_a_ring_wakes_at_once(bell: Doorbell) -> None:
    assert ring(bell.path)
    began = time.monotonic()
    assert bell.wait(5.0)
    assert time.monotonic() - began < 1.0


def test_without_a_ring_the_time_runs_out(bell: Doorbell) -> None:
    began = time.monotonic()
    assert not bell.wait(0.1)
    assert 0.09 <= time.monotonic() - began < 1.0


def test_rings_that_came_together_count_as_one(bell: Doorbell) -> None:
    for _ in range(5):
        ring(bell.path)
    assert bell.wait(1.0)
    assert not bell.wait(0.0)


def test_a_pipe_full_of_rings_still_rings(bell: Doorbell) -> None:
    for _ in range(70_000):  # a pipe holds 65,536 bytes
        assert ring(bell.path)
    while bell.wait(0.0):
        pass
    assert ring(bell.path)
    assert bell.wait(1.0)


def test_nobody_there(tmp_path: Path) -> None:
    assert not ring(tmp_path / "nowhere")
    gone = Doorbell(tmp_path / "bell")
    gone.close()
    assert not ring(gone.path)


def test_the_next_owner_takes_the_same_pipe(bell: Doorbell) -> None:
    second = Doorbell(bell.path)
    ring(bell.path)
    assert second.wait(1.0)
    second.close()
    assert stat.S_IMODE(bell.path.stat().st_mode) == 0o600


def test_from_another_process(bell: Doorbell) -> None:
    program = "import sys, pathlib; from clawd.doorbell import ring; assert ring(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, str(bell.path)], check=True)
    assert bell.wait(5.0)
