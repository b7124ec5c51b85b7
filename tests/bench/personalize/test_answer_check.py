"""Whether a reply still is an answer."""

from __future__ import annotations

import pytest

from clawd.bench.personalize.answer_check import deals_with, facts_reused, floor, is_loop
from clawd.bench.personalize.tasks import Task

TASK = Task("Rosa buys 4 books at 1,600 dollars each. How much does Rosa pay?", "6400", ())

PROSE = (
    "Rosa buys four books. Each costs the same, so we multiply the price by the count, and that product is what she "
    "hands to the seller at the end of the day."
)


@pytest.mark.parametrize(
    ("reply", "facts"),
    [
        ("Rosa pays 6,400 dollars.", 2),
        ("6400", 1),
        ("4 times 1600 is 6400.", 3),
        ("Rosa, Rosa and Rosa again.", 1),
        ("14 times 16000", 0),  # other numbers that hold the task's
        ("Well done!", 0),
    ],
)
def test_facts_are_counted_once_each(reply: str, facts: int) -> None:
    assert facts_reused(TASK, reply) == facts


@pytest.mark.parametrize(
    "reply",
    [
        "well done! " * 30,
        "great great great great " * 10,
        "Rosa pays 4 times 1600. " * 12,
        "!" * 60,
        PROSE + " You are so kind and good. You are so kind and good." + " You are so kind and good." * 10,
    ],
)
def test_loops(reply: str) -> None:
    assert is_loop(reply)
    assert not deals_with(TASK, reply)


@pytest.mark.parametrize(
    "reply",
    ["", "No, no, no.", PROSE, "3 * 4 = 12, then 12 * 5 = 60, then 60 - 7 = 53, then 53 + 8 = 61. The answer is 61."],
)
def test_no_loops(reply: str) -> None:
    assert not is_loop(reply)


def test_the_floor_lies_three_deviations_below_the_base() -> None:
    assert floor([-1.0, -1.2, -0.8]) == pytest.approx(-1.0 - 3 * 0.2)
