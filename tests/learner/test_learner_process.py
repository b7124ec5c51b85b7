"""The learner as the daemon starts it: a process of its own, with the real embedded model's vocabulary."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from clawd import lifeline
from clawd.config import Settings, hand_over
from clawd.doorbell import ring
from clawd.model.embedded import embedded_model_path
from clawd.model.fingerprint import fingerprint
from tests.learner.parts import World


class RunningLearner:
    def __init__(self, world: World, **settings: dict) -> None:
        hand_over(Settings(**settings), world.data.settings_file)
        self.log = world.data.logs / "learner.log"
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "clawd.learner", "--home", str(world.data.root)],
                stdout=file,
                stderr=file,
                env=lifeline.environment(),
            )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)

    def updates(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "clawd.learner.train.update" in child.cmdline()]


def eventually(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.base = fingerprint(embedded_model_path(), made.data.cache)  # what the process serves and trains
    yield made
    assert made.store.verify() == []
    made.store.close()


@pytest.fixture
def start(world: World) -> Iterator[Callable[..., RunningLearner]]:
    started: list[RunningLearner] = []

    def begin(**settings: dict) -> RunningLearner:
        started.append(RunningLearner(world, **settings))
        return started[-1]

    yield begin
    for learner in started:
        if learner.process.poll() is None:
            learner.process.kill()
            learner.process.wait()


def test_it_judges_what_comes_at_once_when_the_bell_rings(world: World, start: Callable[..., RunningLearner]) -> None:
    first = world.turn("Thanks!")
    learner = start()
    eventually(lambda: world.state(first)[0] == "sampled")
    turn_id = world.turn("No, use rye flour instead.")
    assert ring(world.data.learner_bell)
    eventually(lambda: world.state(turn_id)[0] == "sampled", timeout_s=3.0)
    assert learner.stop() == 0
    assert "Traceback" not in learner.log.read_text()


def test_term_in_the_middle_of_an_update_ends_both_and_the_samples_wait(
    world: World, start: Callable[..., RunningLearner]
) -> None:
    """D6."""
    samples = world.samples(2)
    learner = start(learn={"samples_per_update": 2})
    eventually(learner.updates)
    (child,) = learner.updates()
    began = time.monotonic()
    assert learner.stop() == 0
    assert time.monotonic() - began < 5.0
    assert not child.is_running()
    assert [world.store.signals.get(sample_id).state for sample_id in samples] == ["waiting"] * 2
    assert json.loads(world.store.events("update.failed")[0]["detail"])["reason"] == "interrupted"


def test_killed_its_update_dies_too_and_the_next_one_picks_up(
    world: World, start: Callable[..., RunningLearner]
) -> None:
    """D2."""
    world.samples(2)
    learner = start(learn={"samples_per_update": 2})
    eventually(learner.updates)
    (child,) = learner.updates()
    learner.process.kill()
    learner.process.wait()
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    assert world.store.signals.counts() == {"claimed": 2}
    second = start(learn={"samples_per_update": 2, "enabled": False})
    eventually(lambda: world.store.signals.counts() == {"waiting": 2})
    assert second.stop() == 0


def test_a_judge_on_this_server_needs_to_know_where_that_is(world: World, start: Callable[..., RunningLearner]) -> None:
    learner = start(judge={"kind": "llm"})
    assert learner.process.wait(20) == 3
    assert "set judge.base_url" in learner.log.read_text()


def test_calls_in_flight_are_abandoned_on_term(world: World, start: Callable[..., RunningLearner]) -> None:
    from tests.learner.parts import ScriptedJudge, verdict

    turn_id = world.turn("Hm.")
    with ScriptedJudge([verdict(1)]) as judge:
        judge.hang_s = 3.0
        learner = start(judge={"kind": "llm", "base_url": judge.url, "model": "m"})
        eventually(lambda: judge.requests)
        began = time.monotonic()
        assert learner.stop() == 0
        assert time.monotonic() - began < 2.0
    assert world.state(turn_id) == ("judging", None)


def test_it_never_imports_torch(tmp_path: Path) -> None:
    program = (
        "import sys; import clawd.learner.process; import clawd.judge_note; "
        "print([name for name in ('torch', 'transformers', 'peft', 'clawd.server', 'clawd.daemon') "
        "if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert run.stdout.strip() == "[]"


def test_the_judge_note_does_not_load_the_learner() -> None:
    program = (
        "import sys; import clawd.judge_note; "
        "print([name for name in sys.modules if name.startswith(('clawd.learner', 'apscheduler', 'httpx', 'torch'))])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
