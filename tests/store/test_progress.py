"""How sessions went, by the version that gave their first answer."""

from __future__ import annotations

import pytest

from clawd.store import Store
from clawd.store.progress import VersionProgress, verdict, wilson
from clawd.store.records import Reward, Version, Vote
from tests.store.world import World


def talk(world: World, rewards: list[Reward | None], version: Version | None = None) -> None:
    """A session whose answers were judged so, in order; None: never judged."""
    session = world.session()
    for number, reward in enumerate(rewards):
        turn = world.turn(session, version=version, request_hash=f"{session.id} {number}")
        if reward is not None:
            assert world.store.turns.give_next_state(turn, turn, [{"role": "user", "content": "so"}])
            if reward:
                world.store.signals.settle(turn, [Vote("rules", reward, "so")], reward)
            else:
                world.store.signals.dismiss(turn, [Vote("rules", 0, "so")], "no signal")


def served(world: World) -> Version:
    version = world.staged(samples=1)
    world.store.updates.activate(version.id)
    return version


def test_sessions_count_for_the_version_of_their_first_answer(store: Store) -> None:
    world = World(store)
    talk(world, [-1, -1, 1])
    talk(world, [1])
    talk(world, [0, -1])
    version = served(world)  # from one more praised session of the base
    talk(world, [1], version)
    talk(world, [None], version)
    base, first = store.progress.versions(world.user.adapter.id)
    assert (base.name, base.sessions, base.judged, base.satisfied, base.corrections) == ("base", 4, 3, 2, 3)
    assert (first.name, first.sessions, first.judged, first.satisfied, first.corrections) == ("v1", 2, 1, 1, 0)
    assert base.corrections_per_session == 0.75
    assert first.neutral_kl is None


def test_side_turns_other_adapters_and_retried_answers_are_left_out(store: Store) -> None:
    world = World(store)
    other, _ = store.people.add("ada")
    world.turn(kind="side")
    world.turn(world.session(user=other), user=other)
    session = world.session()
    world.turn(session, request_hash="same")
    world.turn(session, request_hash="same")
    (base,) = store.progress.versions(world.user.adapter.id)
    assert (base.sessions, base.judged) == (1, 0)


def test_nothing_yet(store: Store) -> None:
    assert store.progress.versions(World(store).user.adapter.id) == []


@pytest.mark.parametrize(
    ("good", "count", "low", "high"),
    [(0, 0, 0.0, 1.0), (5, 10, 0.2366, 0.7634), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662)],
)
def test_wilson(good: int, count: int, low: float, high: float) -> None:
    """The last one is Newcombe's published example (1998)."""
    assert wilson(good, count) == pytest.approx((low, high), abs=1e-4)


def version(name: str, satisfied: int, judged: int) -> VersionProgress:
    return VersionProgress(name, judged, judged, satisfied, 0, None)


@pytest.mark.parametrize(
    ("versions", "says"),
    [
        ([], "Can't be told"),
        ([version("base", 2, 20)], "Can't be told"),
        ([version("base", 2, 20), version("v1", 15, 20)], "Yes: v1"),
        ([version("base", 15, 20), version("v1", 2, 20)], "No, worse: v1"),
        ([version("base", 8, 20), version("v1", 12, 20)], "overlap"),
        ([version("base", 2, 20), version("v1", 15, 20), version("v2", 0, 0)], "Yes: v1"),
    ],
)
def test_verdict(versions: list[VersionProgress], says: str) -> None:
    assert says in verdict(versions)
