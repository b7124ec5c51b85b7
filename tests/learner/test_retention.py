"""A8: old versions go, and never one that is needed; stopped anywhere, rows and files agree again at the next look."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.config import SessionSettings
from clawd.learner.housekeeping import Housekeeping
from clawd.learner.publish import ABANDONED_AFTER_S, Publisher
from clawd.store import Store
from clawd.store.records import NewTurn, Response, Version
from tests.learner.parts import BASE, ScriptedBackend, World


class Stopped(BaseException):
    """The process ends here."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    assert made.store.verify() == []
    made.store.close()


def learn(world: World, count: int) -> list[Version]:
    """So many updates, each served in its turn; all versions."""
    backend = ScriptedBackend()
    updates = world.updates(backend, samples_per_update=1)
    for _ in range(count):
        world.samples(1)
        updates.tick()
        backend.succeed()
        updates.tick()
        world.store.updates.activate(world.store.updates.staged_versions()[0].id)
    return world.store.updates.versions(world.user.adapter.id)


def keep_house(world: World, keep: int = 5) -> None:
    Housekeeping(
        world.data, world.store, Publisher(world.data, world.store, lambda: None), SessionSettings(), keep
    ).tick()


def left(world: World) -> list[int]:
    """Numbers of the versions that can serve; their folders are there, and no others."""
    versions = world.store.updates.versions(world.user.adapter.id)
    there = [version for version in versions if version.state in ("active", "retired")]
    folders = {path for adapter in world.data.adapters.iterdir() for path in adapter.iterdir()}
    assert folders == {version.folder for version in there}
    return [version.number for version in there]


def request(world: World, version: Version) -> str:
    """A request that is being answered by `version`."""
    return world.store.turns.begin(
        NewTurn(
            session_id=world.store.sessions.open(world.user.id, None, "new").id,
            user_id=world.user.id,
            adapter_id=version.adapter_id,
            version_id=version.id,
            base_fingerprint=BASE,
            kind="main",
            kind_evidence="default",
            prompt_ids=(1,),
            messages=[{"role": "user", "content": "hi"}],
            request_hash="r",
        )
    )


def test_fifty_updates_leave_five_and_the_pinned_and_those_in_use(world: World) -> None:
    versions = learn(world, 50)
    lifecycle = world.store.lifecycle
    lifecycle.pin(versions[9].id, True)
    turn = request(world, versions[19])
    wish = lifecycle.ask(world.user.adapter.id, versions[29].id, "person", "")
    keep_house(world)
    assert left(world) == [10, 20, 30, 45, 46, 47, 48, 49, 50]
    keep_house(world)
    assert left(world) == [10, 20, 30, 45, 46, 47, 48, 49, 50]
    world.store.turns.finish(turn, Response((7,), (-0.5,), "hi", "stop", None))
    lifecycle.refuse(wish, "no")
    lifecycle.pin(versions[9].id, False)
    keep_house(world)
    assert left(world) == [45, 46, 47, 48, 49, 50]
    keep_house(world, keep=0)
    assert left(world) == [49, 50]  # the active one and what a rollback leads to
    gone = world.store.updates.version(versions[0].id)
    assert (gone.state, gone.reason) == ("pruned", "older than the 5 that are kept (learn.keep)")
    assert world.store.updates.metrics(gone.update_id) == {"train/loss": 0.25}  # its story stays
    assert [sample.state for sample in world.store.signals.of_update(gone.update_id)] == ["used"]


def test_no_request_begins_on_a_version_that_is_gone(world: World) -> None:
    from clawd.errors import TransitionRefused

    versions = learn(world, 3)
    world.store.lifecycle.prune(0)
    with pytest.raises(TransitionRefused, match="has been removed"):
        request(world, versions[0])


def test_rollbacks_count_what_serves_not_the_number(world: World) -> None:
    versions = learn(world, 8)
    world.store.lifecycle.use(world.user.adapter.id, versions[1].id)
    keep_house(world, keep=2)
    assert left(world) == [1, 2, 7, 8]


def test_each_adapter_has_its_own_count(world: World) -> None:
    learn(world, 4)
    other, _ = world.store.people.add("other")
    world.user = other
    learn(world, 2)
    keep_house(world, keep=1)
    states = [
        [version.state for version in world.store.updates.versions(adapter.id)]
        for adapter in world.store.people.adapters()
    ]
    assert states == [["pruned", "pruned", "retired", "active"], ["retired", "active"]]


@pytest.mark.parametrize("stop_at", [0, 1, 3])
def test_stopped_between_row_and_files(world: World, monkeypatch: pytest.MonkeyPatch, stop_at: int) -> None:
    learn(world, 8)
    removed = 0
    real = shutil.rmtree

    def remove(path: Path, **kwargs: object) -> None:
        nonlocal removed
        if "adapters" in str(path):
            if removed == stop_at:
                next(iter(Path(path).iterdir())).unlink()  # half of it is gone
                raise Stopped
            removed += 1
        real(path, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", remove)
        with pytest.raises(Stopped):
            keep_house(world, keep=2)
    assert world.store.verify() == []
    keep_house(world, keep=2)
    assert left(world) == [6, 7, 8]


def test_rejected_versions_leave_no_files(world: World) -> None:
    backend = ScriptedBackend()
    updates = world.updates(backend, samples_per_update=1)
    world.samples(1)
    updates.tick()
    backend.succeed()
    updates.tick()
    (version,) = world.store.updates.staged_versions()
    world.store.updates.reject(version.id, "NaN")
    keep_house(world)
    assert not version.folder.exists()


def test_files_of_a_removed_adapter_go(world: World) -> None:
    versions = learn(world, 2)
    people, adapter = world.store.people, world.user.adapter
    people.set_adapter(world.user, people.create_adapter("other"))
    world.store.lifecycle.use(adapter.id, None)
    people.remove_adapter(adapter)
    keep_house(world)
    assert [version.folder.exists() for version in versions] == [False, False]


def test_what_a_killed_import_left_goes_after_a_while(world: World) -> None:
    import os
    import time

    old, new = world.data.cache / "import-old", world.data.cache / "import-new"
    for folder in (old, new):
        folder.mkdir()
    long_ago = time.time() - ABANDONED_AFTER_S - 60
    os.utime(old, (long_ago, long_ago))
    keep_house(world)
    assert (old.exists(), new.exists()) == (False, True)


def test_an_import_killed_between_its_files_and_its_row_leaves_nothing(world: World) -> None:
    target = world.data.adapters / world.user.adapter.id / "v0001"

    def place(_id: str, _number: int) -> tuple[Path, str, str]:
        target.mkdir(parents=True)
        raise Stopped

    with pytest.raises(Stopped):
        world.store.lifecycle.add(world.user.adapter.id, "import", {}, place)
    assert target.exists()
    keep_house(world)
    assert not target.exists()
    assert world.store.updates.versions(world.user.adapter.id) == []


def test_clearing_away_waits_for_an_import_that_is_being_placed(world: World) -> None:
    """Its folder is there and its row is not yet: another process is between the two."""
    target = world.data.adapters / world.user.adapter.id / "v0001"
    placed, done = threading.Event(), threading.Event()

    def place(_id: str, _number: int) -> tuple[Path, str, str]:
        target.mkdir(parents=True)
        placed.set()
        done.wait(1.0)  # others are at it now
        return target, "a", BASE

    def bring() -> None:
        with Store(world.data.database) as other:
            other.lifecycle.add(world.user.adapter.id, "import", {}, place)

    importing = threading.Thread(target=bring)
    importing.start()
    assert placed.wait(10)
    Publisher(world.data, world.store, lambda: None).remove_leftovers()
    importing.join()
    assert target.exists()
    assert left(world) == [1]
