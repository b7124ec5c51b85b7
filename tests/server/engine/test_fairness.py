"""Several people at once: nobody waits for all that somebody else asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.server.engine.fairness import in_turn, who_makes_way
from tests.server.engine.test_scheduler import BACKGROUND, LIMITS, World

ROOMY = replace(LIMITS, cells=4096, sequences=24, remembered=20)


@dataclass(frozen=True)
class Asked:
    owner: str
    rank: tuple[bool, int, int]


def asked(owners: str, begun: bool = False) -> list[Asked]:
    return [Asked(owner, (not begun, index + 1, index)) for index, owner in enumerate(owners)]


def order(running: str, waiting: str) -> str:
    return "".join(request.owner for request in in_turn(asked(running, begun=True), asked(waiting)))


def test_owners_take_turns_by_how_many_they_have_running_then_by_arrival() -> None:
    assert order("", "aaaabb") == "ababaa"
    assert order("aa", "aabcb") == "bcbaa"
    assert order("abc", "cba") == "cba"
    assert order("", "aaa") == "aaa"


def test_a_place_is_given_up_only_to_who_has_none_and_only_by_who_has_several() -> None:
    def way(running: str, newcomer: str) -> int | None:
        requests = asked(running, begun=True)
        found = who_makes_way(requests, Asked(newcomer, (True, 0, 99)))
        return None if found is None else requests.index(found)

    assert way("aaa", "b") == 2
    assert way("aabbb", "c") == 4
    assert way("ab", "c") is None
    assert way("aaab", "b") is None
    assert way("aaa", "a") is None


def flood(world: World, count: int, owner: str = "ann", **fields: object) -> None:
    for index in range(count):
        world.ask(f"{owner}{index}", [ord(owner[0]) * 1000 + index, 1, 2], answer=40, owner=owner, **fields)


def first_step(world: World, request: str) -> int:
    return next(i for i, plan in enumerate(world.plans) if any(row.request == request for row in plan.rows))


def test_one_request_beside_fifty_of_somebody_else_begins_at_once() -> None:
    world = World(ROOMY)
    flood(world, 50)
    for _ in range(10):
        world.step()
    world.ask("bob", [7, 8, 9], answer=40, owner="bob")
    world.step()
    assert first_step(world, "bob") == 10
    rows = 0
    while "bob" in world.clients:
        plan = world.step()
        assert plan is not None
        rows += 1
        assert len(plan.rows) == LIMITS.max_running, "no place is left empty for it"
    assert rows <= 41, "and goes on with every step"
    world.finish()


def test_who_made_way_goes_on_where_it_was_without_being_read_again() -> None:
    world = World(ROOMY)
    flood(world, 8)
    for _ in range(10):
        world.step()
    world.ask("bob", [7, 8, 9], answer=5, owner="bob")
    world.finish()
    assert world.read() == 8 * (3 + 39) + 3 + 4  # prompts, and all answers but their last tokens
    ended = [row.request for plan in world.plans for row in plan.rows]
    last = {request: i for i, request in enumerate(ended)}
    assert sorted((f"ann{i}" for i in range(3)), key=lambda name: last[name]) == ["ann0", "ann1", "ann2"]
    assert last["ann3"] < last["ann4"], "it goes on before what had not begun"


def test_the_places_are_shared_evenly_by_those_who_fill_the_queue() -> None:
    world = World(ROOMY)
    flood(world, 30, "ann")
    flood(world, 30, "bob")
    flood(world, 30, "cat")
    for _ in range(60):
        world.step()
    for plan in world.plans[10:]:
        running = [row.request[:3] for row in plan.rows]
        assert len(running) == LIMITS.max_running
        assert {running.count(owner) for owner in ("ann", "bob", "cat")} <= {1, 2}


def test_owners_take_turns_in_the_background_too_and_people_still_come_first() -> None:
    world = World(ROOMY)
    flood(world, 20, "ann", priority=BACKGROUND)
    world.step()
    world.ask("bob", [7, 8, 9], answer=3, owner="bob", priority=BACKGROUND)
    world.ask("person", [5, 6], answer=3, owner="ann")
    world.step()
    assert [row.request for row in world.plans[-1].rows] == ["person"]
    while "person" in world.clients:
        world.step()
    world.step()
    assert "bob" in [row.request for row in world.plans[-1].rows]


@settings(max_examples=60, deadline=None)
@given(
    limits=st.builds(
        lambda cells, running, remembered: replace(
            LIMITS, cells=cells, max_running=running, remembered=remembered, sequences=running + remembered
        ),
        st.integers(60, 300),
        st.integers(1, 4),
        st.integers(0, 6),
    ),
    before=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30), st.integers(1, 20)), max_size=12),
    strangers=st.lists(st.integers(1, 20), min_size=1, max_size=4),
)
def test_nobody_starves_and_nothing_idles_whoever_keeps_coming(
    limits: object, before: list[tuple[str, int, int]], strangers: list[int]
) -> None:
    """Somebody new comes with every step, for ever; all that waited before them is answered all the same."""
    world = World(limits)  # type: ignore[arg-type]
    for index, (owner, length, answer) in enumerate(before):
        world.ask(f"{owner}{index}", [index * 100 + i for i in range(length)], answer=answer, owner=owner)
    old = set(world.clients)
    for step in range(6000):
        if not old & set(world.clients):
            break
        if step % 3 == 0 and len(world.clients) < 20:
            name = f"s{step}"
            world.ask(name, [50_000 + step, 1], answer=strangers[step % len(strangers)], owner=name)
        assert world.step() is not None, "there is work and nothing is done"
    assert not old & set(world.clients), "somebody starves"
    world.finish()
