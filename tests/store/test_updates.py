"""Samples are claimed once, used once, and given back when their update fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.errors import TransitionRefused
from clawd.store.records import Vote
from tests.store.world import BASE, World


def claim(world: World, count: int = 2):
    return world.store.updates.claim(world.user.adapter.id, BASE, count, {"steps": 1})


def test_too_few_samples_are_not_claimed(world: World) -> None:
    world.sample()
    assert claim(world) is None
    world.sample()
    update = claim(world)
    assert update is not None and update.number == 1
    assert world.store.signals.counts() == {"claimed": 2}


def test_one_update_at_a_time_and_later_samples_wait_for_the_next(world: World) -> None:
    for _ in range(4):
        world.sample()
    assert claim(world) is not None
    assert claim(world) is None
    assert world.store.signals.counts() == {"claimed": 2, "waiting": 2}


def test_a_users_samples_are_never_claimed_for_another_adapter(world: World) -> None:
    other, _ = world.store.people.add("other")
    world.sample(user=other)
    world.sample()
    assert claim(world) is None
    assert world.store.signals.waiting(other.adapter.id, BASE) == 1


def test_activation_uses_the_samples_and_retires_the_version_before(world: World) -> None:
    first = world.staged()
    world.store.updates.activate(first.id)
    second = world.staged()
    assert world.store.updates.active_version(world.user.adapter.id) == world.store.updates.version(first.id)
    world.store.updates.activate(second.id)
    states = [version.state for version in world.store.updates.versions(world.user.adapter.id)]
    assert states == ["retired", "active"]
    assert world.store.updates.version(second.id).parent_id == first.id
    assert world.store.signals.counts() == {"used": 4}
    assert world.store.verify() == []
    with pytest.raises(TransitionRefused):
        world.store.updates.activate(second.id)


def test_a_failed_update_gives_its_samples_back_until_they_have_failed_too_often(world: World) -> None:
    for _ in range(2):
        world.sample()
    for _ in range(2):
        update = claim(world)
        assert update is not None
        world.store.updates.fail(update.id, "no memory", attempts=3)
        assert world.store.signals.counts() == {"waiting": 2}
    update = claim(world)
    assert update is not None
    world.store.updates.fail(update.id, "no memory", attempts=3)
    assert world.store.signals.counts() == {"quarantined": 2}
    assert world.store.verify() == []


def test_an_interrupted_update_costs_its_samples_nothing(world: World) -> None:
    for _ in range(2):
        world.sample()
    for _ in range(5):
        update = claim(world)
        assert update is not None
        world.store.updates.fail(update.id, "interrupted", attempts=None)
    assert world.store.signals.counts() == {"waiting": 2}


def test_a_refused_result_and_a_rejected_version_quarantine_their_samples(world: World) -> None:
    for _ in range(2):
        world.sample()
    update = claim(world)
    assert update is not None
    world.store.updates.refuse(update.id, "without effect", {"kl": 0.0})
    version = world.staged()
    world.store.updates.reject(version.id, "NaN in blk.0")
    assert world.store.signals.counts() == {"quarantined": 4}
    assert world.store.updates.active_version(world.user.adapter.id) is None
    assert world.store.verify() == []


def test_samples_left_out_are_quarantined_with_their_reason_and_not_used(world: World) -> None:
    samples = [world.sample(), world.sample()]
    update = claim(world)
    assert update is not None
    version = world.store.updates.stage(update.id, Path("/x"), "a", "b", {}, {samples[0]: "too long"})
    world.store.updates.activate(version.id)
    assert [world.store.signals.get(sample).state for sample in samples] == ["quarantined", "used"]


def test_verify_names_what_is_wrong(world: World) -> None:
    world.staged()
    connection = world.store._connection
    connection.change("UPDATE samples SET update_id = NULL")
    connection.change("UPDATE turns SET logprobs = x'00000000' WHERE rowid = 1")
    found = "\n".join(world.store.verify())
    assert "claimed by an update that is missing" in found
    assert "log-probabilities do not match" in found


def test_samples_of_another_base_wait_until_it_is_back(world: World) -> None:
    world.sample()
    turn_id = world.turn(base="other")
    assert world.store.turns.give_next_state(turn_id, turn_id, [{"role": "user", "content": "thanks"}])
    world.store.signals.settle(turn_id, [Vote("rules", 1, "thanks")], 1)
    assert claim(world) is None
    assert world.store.signals.waiting(world.user.adapter.id, "other") == 1
    assert world.store.updates.claim(world.user.adapter.id, "other", 1, {}) is not None
