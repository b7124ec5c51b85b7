"""Which hints a batch holds, and what the trainer is given of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bench.ablate.batch import GOOD, OFF, REJECTED, VAGUE, Lesson, _hints, candidates, card_of, samples_of
from clawd.learner.hints import HINT
from clawd.store.records import Hint
from tests.learner.parts import World, render, words


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_most_rejected_answers_have_two_or_three_hints_of_which_one_is_off() -> None:
    told = [candidates(place) for place in range(REJECTED)]
    assert sorted(map(len, told)) == [0] * 2 + [2] * 4 + [3] * 6
    hinted = [hints for hints in told if hints]
    assert all(GOOD in hints and len(set(hints) & set(OFF)) == 1 for hints in hinted)
    assert all(VAGUE in hints for hints in hinted if len(hints) == 3)


def test_the_order_of_hints_tells_nothing() -> None:
    """The first of equals wins where overlap chooses."""
    hinted = [hints for place in range(REJECTED) if (hints := candidates(place))]
    places = [hints.index(GOOD) for hints in hinted]
    assert set(places) == {0, 1, 2}
    assert {hints[0] for hints in hinted} > {GOOD, VAGUE}


def test_each_off_hint_occurs() -> None:
    assert {text for place in range(REJECTED) for text in candidates(place)} == {GOOD, VAGUE, *OFF}


def test_samples_are_what_was_served(world: World) -> None:
    bad, good = (world.store.turns.get(world.turn(finish=finish)) for finish in ("length", "stop"))
    lessons = [Lesson(bad, -1, _hints(0)), Lesson(good, 1, ())]
    rejected, praised = samples_of(lessons, render, [])
    assert (rejected.prompt_ids, rejected.response_ids) == (bad.prompt_ids, bad.response_ids)
    assert rejected.rollout_logprobs == bad.logprobs
    assert (rejected.reward, rejected.truncated) == (-1, True)
    assert [hint.text for hint in rejected.hints] == candidates(0)
    assert HINT.format(hint=GOOD) in words(rejected.hints[0].prompt_ids)
    assert (praised.reward, praised.hints, praised.truncated) == (1, [], False)


def test_with_a_card_every_sample_is_taught(world: World) -> None:
    turn = world.store.turns.get(world.turn())
    lessons = [Lesson(turn, -1, _hints(place)) for place in range(REJECTED)] + [Lesson(turn, 1, ())]
    card = card_of(lessons, 8)
    assert sorted(card) == sorted({GOOD, VAGUE, *OFF})
    *_, praised = samples_of(lessons, render, card)
    (hint,) = praised.hints
    assert all(f"- {line}" in words(hint.prompt_ids) for line in card)


def test_a_card_keeps_what_came_last(world: World) -> None:
    turn = world.store.turns.get(world.turn())
    lesson = Lesson(turn, -1, tuple(Hint(str(n), text) for n, text in enumerate(("One.", "Two.", "one", "Three."))))
    assert card_of([lesson], 8) == ["One.", "Two.", "Three."]
    assert card_of([lesson], 2) == ["Two.", "Three."]
