"""A7: the writer is stopped anywhere; a reader sees the old version or the new one, and leftovers can be cleaned."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.config import SessionSettings
from clawd.learner import publish
from clawd.learner.housekeeping import JOBS_KEPT, Housekeeping
from clawd.learner.publish import Publisher
from tests.learner.parts import ScriptedBackend, World


class Stopped(BaseException):
    """The process ends here."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    assert made.store.verify() == []
    made.store.close()


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend()


def finished_update(world: World, backend: ScriptedBackend) -> None:
    world.samples(2)
    updates = world.updates(backend)
    updates.tick()
    backend.succeed()


def steps(world: World, monkeypatch: pytest.MonkeyPatch, stop_at: int | None) -> list[str]:
    """Count the steps of publishing that touch the disk, and stop at one of them."""
    taken: list[str] = []

    def counted(name: str, real: object) -> object:
        def step(*args: object, **kwargs: object) -> object:
            taken.append(name)
            if len(taken) - 1 == stop_at:
                raise Stopped
            return real(*args, **kwargs)

        return step

    monkeypatch.setattr(publish, "sync", counted("sync", publish.sync))
    monkeypatch.setattr(Path, "rename", counted("rename", Path.rename))
    monkeypatch.setattr(world.store.updates, "stage", counted("stage", world.store.updates.stage))
    return taken


STEPS = ["sync"] * 6 + ["rename", "sync", "stage"]


@pytest.mark.parametrize("stop_at", range(len(STEPS)))
def test_stopped_at_any_step_and_gone_on_at_the_next_start(
    world: World, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    finished_update(world, backend)
    with monkeypatch.context() as patch:
        taken = steps(world, patch, stop_at)
        with pytest.raises(Stopped):
            world.updates(backend).recover()
        assert taken == STEPS[: stop_at + 1]
    assert world.store.updates.staged_versions() == []  # a reader sees nothing of it
    publisher = Publisher(world.data, world.store, lambda: None)
    assert publisher.remove_leftovers() == []  # its update still runs, so it is none

    world.updates(backend).recover()
    (version,) = world.store.updates.staged_versions()
    assert (version.folder / "adapter.gguf").is_file()
    assert world.store.signals.counts() == {"claimed": 2}


def test_all_steps_are_known(world: World, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_update(world, backend)
    taken = steps(world, monkeypatch, None)
    world.updates(backend).recover()
    assert taken == STEPS


def test_what_an_update_left_that_never_became_a_version_is_removed(
    world: World, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_update(world, backend)
    with monkeypatch.context() as patch:
        steps(world, patch, STEPS.index("stage"))
        with pytest.raises(Stopped):
            world.updates(backend).recover()
    target = world.data.adapters / world.user.adapter.id / "v0001"
    assert target.is_dir()
    world.store.updates.fail(world.store.updates.running()[0].id, "interrupted", None)
    publisher = Publisher(world.data, world.store, lambda: None)
    assert publisher.remove_leftovers() == [target] and not target.exists()


def test_a_leftover_does_not_stop_the_next_version_of_its_number(world: World, backend: ScriptedBackend) -> None:
    target = world.data.adapters / world.user.adapter.id / "v0001"
    target.mkdir(parents=True)
    (target / "adapter.gguf").write_text("torn")
    finished_update(world, backend)
    world.updates(backend).recover()
    (version,) = world.store.updates.staged_versions()
    assert (version.folder / "adapter.gguf").read_text().startswith("adapter.gguf of")


def test_published_versions_are_no_leftovers(world: World, backend: ScriptedBackend) -> None:
    finished_update(world, backend)
    world.updates(backend).recover()
    publisher = Publisher(world.data, world.store, lambda: None)
    assert publisher.remove_leftovers() == []
    world.store.updates.activate(world.store.updates.staged_versions()[0].id)
    assert publisher.remove_leftovers() == []


def test_a_folder_that_cannot_be_moved_fails_the_update(
    world: World, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_update(world, backend)

    def full(*args: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        world.updates(backend).recover()
    assert "No space left" in world.events("update.failed")[0]["reason"]
    assert world.store.signals.counts() == {"waiting": 2}


class TestHousekeeping:
    def keep_house(self, world: World, **settings: float) -> None:
        publisher = Publisher(world.data, world.store, lambda: None)
        Housekeeping(world.data, world.store, publisher, SessionSettings(**settings), keep=5).tick()

    def test_idle_sessions_are_closed_and_their_last_turn_has_no_next_state(self, world: World) -> None:
        turn_id = world.turn()
        self.keep_house(world)
        assert world.state(turn_id)[0] == "waiting"
        self.keep_house(world, idle_close_s=1e-9)
        assert world.state(turn_id) == ("discarded", "no next state")

    def test_old_job_folders_go_but_never_a_running_one(self, world: World, backend: ScriptedBackend) -> None:
        world.samples(2)
        world.updates(backend).tick()
        newer = [world.data.jobs / f"Z{number}" for number in range(JOBS_KEPT + 2)]
        for folder in newer:
            folder.mkdir()
        self.keep_house(world)
        assert backend.jobs[0].is_dir()
        assert [folder.exists() for folder in newer] == [False] * 2 + [True] * JOBS_KEPT
