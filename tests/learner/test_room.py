"""Whether an update has room: asked before a child is started, and what becomes of one that is deferred."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.config import LearnSettings
from clawd.learner import room
from clawd.learner.budget import NOT_ENOUGH, Work
from clawd.learner.due import Machine
from clawd.learner.job import Outcome
from clawd.learner.jobs import ServedModel
from clawd.learner.room import expected, room_waits_for
from tests.learner.parts import ANSWER, BASE, ScriptedBackend, World
from tests.learner.tiny_base import write_tiny_base

ON_CPU = LearnSettings(device="cpu")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "home")
    yield made
    assert made.store.verify() == []
    made.store.close()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_tiny_base(tmp_path / "base.gguf")


def test_it_waits_for_memory_with_the_remedies_and_not_where_there_is_enough(base: Path) -> None:
    assert room_waits_for(base, Work(100), ON_CPU, 8000.0) is None
    told = room_waits_for(base, Work(100), ON_CPU, 100.0) or ""
    assert NOT_ENOUGH in told and "learn.quantise = nf4" in told
    bounded = ON_CPU.model_copy(update={"max_memory_mb": 100})
    assert "learn.max_memory_mb = 100" in (room_waits_for(base, Work(100), bounded, 8000.0) or "")


def test_what_it_is_expected_to_take(base: Path) -> None:
    plain, again = (expected(base, Work(2048), ON_CPU, free) for free in (8000.0, 100.0))
    assert plain is not None and not plain.form.checkpointing
    assert again is not None and again.form.checkpointing and again.total < plain.total


def test_a_gpu_is_the_childs_to_ask(base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert room_waits_for(base, Work(100), LearnSettings(device="cuda:0"), 1.0) is None
    assert expected(base, Work(100), LearnSettings(device="cuda"), 8000.0) is None
    monkeypatch.setattr(room, "GPU_NODES", (str(tmp_path / "none"),))
    assert room_waits_for(base, Work(100), LearnSettings(), 1.0) is not None
    (tmp_path / "nvidia").touch()
    monkeypatch.setattr(room, "GPU_NODES", (str(tmp_path / "nvidia"),))
    assert room_waits_for(base, Work(100), LearnSettings(), 1.0) is None


def test_a_model_whose_shape_cannot_be_told_is_left_to_the_update(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUFnonsense")
    assert room_waits_for(tmp_path / "bad.gguf", Work(100), ON_CPU, 1.0) is None


class TestSchedule:
    def test_an_update_without_room_is_not_begun_not_even_when_asked_for(self, world: World, base: Path) -> None:
        backend = ScriptedBackend()
        backend.machine = Machine(load=0.1, free_memory_mb=100.0, battery_percent=None)
        world.samples(2)
        world.store.lifecycle.ask_update(world.user.adapter.id)
        updates = world.updates(backend, ServedModel(base, BASE, "base"), device="cpu")
        updates.tick()
        updates.tick()
        assert backend.jobs == []
        (event,) = world.events("update.blocked")
        assert NOT_ENOUGH in event["reason"]

        backend.machine = Machine(load=0.1, free_memory_mb=8000.0, battery_percent=None)
        backend.now += 60
        updates.tick()
        assert len(backend.jobs) == 1
        assert len(world.events("update.unblocked")) == 1

    def test_one_that_is_deferred_costs_its_samples_nothing_and_is_tried_again_after_a_pause(
        self, world: World
    ) -> None:
        backend = ScriptedBackend()
        ids = world.samples(2)
        updates = world.updates(backend, attempts=1, halt_after=1)
        for tries in (1, 2, 3):
            updates.tick()
            assert len(backend.jobs) == tries
            backend.end(Outcome(state="failed", reason=f"{NOT_ENOUGH}: more is needed", deferred=True))
            updates.tick()
            updates.tick()  # within the pause nothing begins
            assert len(backend.jobs) == tries
            backend.now += world.events("update.failed")[-1]["next_try_in_s"] + 1
        assert [world.store.signals.get(name).failures for name in ids] == [0, 0]
        assert world.store.lifecycle.halted(world.user.adapter.id) is None


def test_the_largest_that_waits(world: World) -> None:
    adapter = world.user.adapter.id

    def largest(count: int = 9, most: int = 10_000) -> tuple[int, int]:
        return world.store.signals.largest_waiting(adapter, BASE, count, most)

    assert largest() == (0, 0)
    world.samples(1, hint="Mention the oven.")
    prompt = len("<user>How do I bake bread?|")
    short = prompt + len(ANSWER) + 1
    assert largest() == (short, 1)
    world.turn("No.", answer=ANSWER * 3)
