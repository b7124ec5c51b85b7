"""Case D6: SIGTERM in the middle of an update. The daemon exits within its time, and the samples wait again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from clawd.config import DaemonSettings
from clawd.daemon import record
from clawd.paths import DataFolder
from clawd.store import Store
from tests.cli.command import clawd, detached_daemon
from tests.tiny_daemon import is_gone, wait_for

pytestmark = pytest.mark.e2e

SAMPLES = 2
TRAINS_FOR_EVER = ["--learn.steps", "1000000"]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with detached_daemon(tmp_path, "--learn.samples_per_update", str(SAMPLES), *TRAINS_FOR_EVER):
        found = record.running(DataFolder(tmp_path))
        assert found is not None
        yield found.url


def say_something(url: str, number: int, score: int) -> None:
    body = {"model": "clawd", "messages": [{"role": "user", "content": f"Count to {number}."}], "max_tokens": 12}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).raise_for_status().json()
    praise = {"response_id": answer["id"], "score": score, "hint": "Count on."}  # a cut answer teaches by a hint alone
    httpx.post(f"{url}/clawd/v1/feedback", json=praise, timeout=10).raise_for_status()


def update_processes(home: Path) -> list[int]:
    """Process ids of the learner's update child; the process that makes the dense base ahead is none."""
    found = record.running(DataFolder(home))
    learner = next((process.pid for process in found.processes if process.name == "learner"), None) if found else None
    children = psutil.Process(learner).children(recursive=True) if learner else []
    return [child.pid for child in children if "clawd.learner.train.update" in child.cmdline()]


def test_samples_wait_again(tmp_path: Path, url: str) -> None:
    for number, score in enumerate((1, -1), start=3):
        say_something(url, number, score)
    wait_for(lambda: bool(update_processes(tmp_path)), "an update runs", timeout_s=60)
    log = DataFolder(tmp_path).logs / "update.log"
    wait_for(lambda: "libtorch" in maps_of(update_processes(tmp_path)), "torch is loaded", timeout_s=60)
    pids = update_processes(tmp_path)

    began = time.monotonic()
    done = clawd(tmp_path, "stop")
    assert done.returncode == 0, done.stderr + log.read_text()
    assert time.monotonic() - began < DaemonSettings().grace_s
    assert pids
    assert all(map(is_gone, pids))

    with Store(DataFolder(tmp_path).database) as store:
        adapter = store.people.named("default").adapter
        update = store.updates.newest(adapter.id)
        assert update is not None
        assert (update.state, update.reason) == ("failed", "interrupted")
        assert store.signals.counts(adapter.id) == {"waiting": SAMPLES}
        assert store.signals.counts() == {"waiting": SAMPLES}
        assert store.updates.versions(adapter.id) == []
        assert store.verify() == []


def maps_of(pids: list[int]) -> str:
    """What the processes have mapped into memory; "" for one that has ended meanwhile."""
    texts = []
    for pid in pids:
        try:
            texts.append(Path(f"/proc/{pid}/maps").read_text())
        except (FileNotFoundError, ProcessLookupError):
            texts.append("")
    return "".join(texts)
