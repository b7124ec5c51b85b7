"""The arithmetic from measures to rows and goals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clawd.bench.ablate.figures import Measured, Result, goals, row
from clawd.bench.ablate.reading import Spoken
from clawd.bench.ablate.variants import GRPO, HYBRID, NO_CLIP, RANDOM, Variant
from clawd.learner.train.probe import Answer

BASE = Spoken(tokens=40.0, cut=0.5, satisfied=0.0)
ONE = Measured(0.3, 0.02, 0.05, Spoken(tokens=30.0, cut=0.25, satisfied=0.5), 20.0)


def result(name: str, *gains: float, refused: tuple[str, ...] = (), **changes: object) -> Result:
    measured = [replace(ONE, gain=gain, **changes) for gain in gains]  # type: ignore[arg-type]
    return Result(Variant(name, {"steps": 1}, seeds=len(gains) + len(refused)), measured, refused)


def test_a_row_holds_each_figure() -> None:
    told = row(result("x", 0.3), BASE)
    assert told["variant"] == "x"
    assert told["changes"] == {"steps": 1}
    assert (told["gain"], told["neutral_kl"], told["kl_old"]) == (0.3, 0.02, 0.05)
    assert (told["length_change"], told["cut"], told["satisfied"]) == (-10.0, 0.25, 0.5)
    assert told["gain_per_kl"] == 15.0
    assert told["gain_per_root_kl"] == pytest.approx(2.12)
    assert (told["range"], told["refused"]) == ({}, None)


def test_several_seeds_are_a_median_and_a_range() -> None:
    told = row(result("x", 0.1, 0.5, 0.2), BASE)
    assert told["gain"] == 0.2
    assert told["range"]["gain"] == [0.1, 0.5]
    assert told["gain_per_kl"] == 10.0  # the median of quotients


def test_a_refused_variant_says_why_and_has_no_figures() -> None:
    told = row(result("x", refused=("too far", "too far", "too certain")), BASE)
    assert told["refused"] == "too far; too certain"
    assert all(told[name] is None for name in ("gain", "neutral_kl", "gain_per_kl", "length_change", "seconds"))
    assert told.keys() == row(result("x", 0.3), BASE).keys()


def test_some_seeds_may_be_refused() -> None:
    told = row(result("x", 0.1, 0.3, refused=("too far",)), BASE)
    assert (told["gain"], told["seeds"], told["refused"]) == (0.2, 3, "too far")


def test_a_version_without_any_drift_has_no_quotient() -> None:
    assert row(result("x", 0.3, neutral_kl=0.0), BASE)["gain_per_kl"] is None


def test_goals_are_of_what_was_run() -> None:
    clear = replace(ONE.spoken, cut=0.75)
    told = goals([result(HYBRID, 0.3), result(GRPO, 0.4), result(RANDOM, 0.1, 0.2), result(NO_CLIP, 0.2, spoken=clear)])
    assert [(goal.name, goal.value, goal.ok) for goal in told] == [
        ("hybrid_gain_nats", 0.3, True),
        ("hybrid_over_grpo_nats", -0.1, False),
        ("hybrid_over_hint_by_lot_nats", 0.15, True),
        ("no_clip_cut_less_hybrid_cut", 0.5, True),
    ]


def test_what_was_refused_misses_its_goals() -> None:
    told = goals([result(HYBRID, refused=("too far",)), result(GRPO, 0.1), result(NO_CLIP, 0.1)])
    assert [(goal.value, goal.ok) for goal in told] == [(None, False)] * 3


def test_spoken_counts_ends_and_satisfying_answers() -> None:
    answers = [
        Answer(ids=[1, 2], text="A kettle boils water.", ended=True),
        Answer(ids=[1, 2, 3, 4], text="1. Water\n2. Heat", ended=False),
    ]
    assert Spoken.of(answers) == Spoken(tokens=3.0, cut=0.5, satisfied=0.5)
