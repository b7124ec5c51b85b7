from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clawd.server.engine.sampler import Sampler, draw, largest, nucleus
from clawd.server.engine.types import SamplingParams

Row = NDArray[np.float32]


def row(seed: int, size: int = 1000, scale: float = 3.0) -> Row:
    return (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)


def log_softmax(logits: Row) -> NDArray[np.float64]:
    exact = logits.astype(np.float64)
    return exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())


def allowed(logits: Row, params: SamplingParams, draws: int = 400) -> set[int]:
    """What comes up; with a flat enough row, everything that may."""
    sampler = Sampler(replace(params, seed=0))
    return {sampler.choose(logits).id for _ in range(draws)}


def reference(logits: Row, params: SamplingParams) -> set[int]:
    """Temperature, top-k, top-p, min-p the slow way: the ids that may be chosen."""
    exact = logits.astype(np.float64) / params.temperature
    probabilities = np.exp(exact - exact.max())
    order = np.argsort(-probabilities, kind="stable")
    if params.top_k:
        order = order[: params.top_k]
    kept = probabilities[order] / probabilities[order].sum()
    count = int((np.cumsum(kept) < params.top_p).sum()) + 1
    order, kept = order[:count], kept[:count]
    return set(order[kept >= params.min_p * kept.max()].tolist())


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0),
        SamplingParams(temperature=0.3),
        SamplingParams(top_p=0.5),
        SamplingParams(top_k=3),
        SamplingParams(min_p=0.2),
        SamplingParams(presence_penalty=2, frequency_penalty=1, temperature=1.7),
    ],
)
def test_the_recorded_logprob_is_the_full_vocabulary_one_at_temperature_one(params: SamplingParams) -> None:
    logits = row(1)
    exact = log_softmax(logits)
    sampler = Sampler(replace(params, seed=3, top_logprobs=4))
    for _ in range(50):
        choice = sampler.choose(logits)
        assert choice.logprob == pytest.approx(exact[choice.id], abs=1e-5)
        assert [a.id for a in choice.alternatives] == np.argsort(-exact)[:4].tolist()
        assert [a.logprob for a in choice.alternatives] == pytest.approx(np.sort(exact)[::-1][:4], abs=1e-5)


def test_greedy_takes_the_largest() -> None:
    logits = row(2)
    assert Sampler(SamplingParams(temperature=0)).choose(logits).id == int(logits.argmax())


def test_logits_are_not_changed() -> None:
    logits = row(3)
    before = logits.copy()
    logits.setflags(write=False)
    sampler = Sampler(SamplingParams(temperature=0.5, top_p=0.9, presence_penalty=1, top_logprobs=5))
    for _ in range(3):
        sampler.choose(logits)
    assert (logits == before).all()


def test_the_same_seed_gives_the_same_tokens_and_another_one_others() -> None:
    logits = row(4)

    def draw(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingParams(seed=seed))
        return [sampler.choose(logits).id for _ in range(20)]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert draw(None) != draw(None)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_come_as_often_as_they_should(temperature: float) -> None:
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
    expected = np.exp(log_softmax(logits / np.float32(temperature)))
    sampler = Sampler(SamplingParams(temperature=temperature, seed=0))
    counts = np.bincount([sampler.choose(logits).id for _ in range(8000)], minlength=4) / 8000
    assert counts == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(top_k=5),
        SamplingParams(top_p=0.6),
        SamplingParams(min_p=0.3),
        SamplingParams(top_k=8, top_p=0.7, min_p=0.1, temperature=0.8),
        SamplingParams(top_p=0.001),
        SamplingParams(top_k=1000),
    ],
)
def test_only_what_may_be_chosen_is(params: SamplingParams) -> None:
    logits = row(5, size=40, scale=0.8)
    assert allowed(logits, params, draws=3000) == reference(logits, params)


def test_penalties_count_what_was_generated() -> None:
    logits = np.zeros(4, np.float32)
    logits[2] = 3.0
    greedy = SamplingParams(temperature=0, presence_penalty=1.0, frequency_penalty=0.75)
    sampler = Sampler(greedy)
    # After n times token 2 stands at 3 - 1 - 0.75 n: above 0 up to n = 2.
    assert [sampler.choose(logits).id for _ in range(5)] == [2, 2, 2, 0, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_refused(bad: float) -> None:
    logits = row(6)
    logits[17] = bad
    with pytest.raises(ValueError, match="finite"):
        Sampler(SamplingParams()).choose(logits)
    with pytest.raises(ValueError, match="finite"):
        Sampler(SamplingParams()).choose(np.full(10, -np.inf, np.float32))


def test_a_token_that_cannot_be_is_no_trouble() -> None:
    logits = row(7)
    logits[3] = -np.inf
    choice = Sampler(SamplingParams(top_p=0.9)).choose(logits)
    assert choice.id != 3 and np.isfinite(choice.logprob)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([10, 130, 4096]), st.integers(1, 300), st.booleans())
def test_the_largest_are_found_without_sorting(seed: int, size: int, k: int, rounded: bool) -> None:
    values = row(seed, size)
    if rounded:
        values = np.round(values)  # many equals
    k = min(k, size)
    assert largest(values, k).tolist() == np.argsort(-values, kind="stable")[:k].tolist()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([10, 4096]), st.floats(0.01, 0.999), st.floats(0.1, 8))
def test_the_nucleus_is_the_smallest_set_that_holds_enough(seed: int, size: int, top_p: float, scale: float) -> None:
    weights = np.exp(row(seed, size, scale)).astype(np.float32)
    kept = nucleus(weights, top_p)
    exact = weights.astype(np.float64)
    order = np.argsort(-weights, kind="stable")
    assert kept.tolist() == sorted(order[: len(kept)].tolist())
    assert exact[kept].sum() >= top_p * exact.sum() * (1 - 1e-9)
    assert exact[order[: len(kept) - 1]].sum() < top_p * exact.sum()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 10, 4096, 5000]), st.floats(0, 1, exclude_max=True))
def test_a_draw_never_falls_on_what_has_no_weight(seed: int, size: int, uniform: float) -> None:
    weights = np.exp(row(seed, size))
    weights[np.random.default_rng(seed).random(size) < 0.9] = 0
    weights[seed % size] = 1
    assert weights[draw(weights, uniform)] > 0


def test_a_draw_from_a_long_row_follows_the_weights() -> None:
    weights = np.ones(5000, np.float32)
    weights[[0, 70, 4999]] = [2500, 5000, 2500]
    uniforms = (np.arange(20_000) + 0.5) / 20_000
    counts = np.bincount([draw(weights, uniform) for uniform in uniforms], minlength=5000)
    total = weights.sum()
    assert counts[[0, 70, 4999]] == pytest.approx(weights[[0, 70, 4999]] / total * 20_000, abs=2)
    assert counts[1:70].sum() == pytest.approx(69 / total * 20_000, abs=70)


class Only:
    """A constraint that allows some tokens, whatever has been written."""

    def __init__(self, size: int, *tokens: int) -> None:
        self.mask = np.zeros(size, np.bool_)
        self.mask[list(tokens)] = True
        self.told: list[int] = []

    def allowed(self) -> NDArray[np.bool_]:
        return self.mask

    def advance(self, token: int) -> None:
        self.told.append(token)


EVERY_KIND = [
    SamplingParams(temperature=0),
    SamplingParams(),
    SamplingParams(temperature=0.4, top_k=2),
    SamplingParams(top_p=0.3),
    SamplingParams(top_k=1),
    SamplingParams(min_p=0.5, presence_penalty=1.5),
]


@pytest.mark.parametrize("params", EVERY_KIND)
def test_a_constraint_shapes_the_choice_and_not_the_logprob(params: SamplingParams) -> None:
    logits = row(8)
    exact = log_softmax(logits)
    unlikely = np.argsort(exact)[:5].tolist()
    matcher = Only(len(logits), *unlikely)
    sampler = Sampler(replace(params, seed=1, top_logprobs=3), matcher)
    chosen = [sampler.choose(logits) for _ in range(50)]
    assert {choice.id for choice in chosen} <= set(unlikely)
    assert matcher.told == [choice.id for choice in chosen]
    for choice in chosen:
        assert choice.logprob == pytest.approx(exact[choice.id], abs=1e-5)
        assert [a.id for a in choice.alternatives] == np.argsort(-exact)[:3].tolist()


def test_what_is_allowed_comes_as_often_as_it_should() -> None:
    logits = np.log(np.array([0.6, 0.1, 0.2, 0.1], np.float32))
    sampler = Sampler(SamplingParams(seed=0), Only(4, 1, 2))
    counts = np.bincount([sampler.choose(logits).id for _ in range(6000)], minlength=4) / 6000
    assert counts == pytest.approx([0, 1 / 3, 2 / 3, 0], abs=0.02)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_all_that_is_allowed_cannot_be_nothing_else_is_chosen(temperature: float) -> None:
    logits = row(9)
    logits[3] = -np.inf
    with pytest.raises(ValueError, match="no chance"):
        Sampler(SamplingParams(temperature=temperature), Only(len(logits), 3)).choose(logits)


@pytest.mark.parametrize("params", EVERY_KIND)
def test_a_bias_shapes_the_choice_and_not_the_logprob(params: SamplingParams) -> None:
    logits = row(10)
    exact = log_softmax(logits)
    best, worst = int(logits.argmax()), int(logits.argmin())
    wanted = Sampler(replace(params, seed=2, logit_bias=((worst, 100.0),))).choose(logits)
    assert (wanted.id, wanted.logprob) == (worst, pytest.approx(exact[worst], abs=1e-5))
    sampler = Sampler(replace(params, seed=2, logit_bias=((best, -100.0),)))
    assert best not in {sampler.choose(logits).id for _ in range(200)}


def test_a_bias_chooses_among_what_is_allowed_and_nothing_else() -> None:
    logits = row(11)
    bias = ((5, 100.0), (6, 50.0), (7, -100.0))
    sampler = Sampler(SamplingParams(seed=0, logit_bias=bias), Only(len(logits), 6, 7, 8))
    assert {sampler.choose(logits).id for _ in range(50)} == {6}
    only_banned = Sampler(SamplingParams(logit_bias=bias), Only(len(logits), 7))
    assert only_banned.choose(logits).id == 7
