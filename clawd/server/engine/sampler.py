"""From one row of raw logits to a token, its log-probability and the alternatives.

Axis V is the vocabulary; all rows are float32 (V,). The recorded log-probability is that of the full vocabulary at
temperature 1, from the raw logits. Penalties, biases, a constraint, temperature, top-k, top-p and min-p, in this order,
shape the choice alone. Nothing sorts the vocabulary: a threshold that provably keeps every candidate comes first, and
only what is above it is sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clawd.server.engine.types import Matcher, SamplingParams, TokenAlternative

Row = NDArray[np.float32]
Ids = NDArray[np.int64]
FLOOR = 1 / 16  # of the largest weight, and again of that: where the search for the nucleus looks first
SMALLEST = 1e-9
BLOCK = 64  # entries of V that are looked at as one before each is


GREEDY_BELOW = 1e-3
"""A temperature below this leaves the most likely token alone, and one that float32 rounds to 0 divides by it."""


@dataclass(frozen=True)
class Choice:
    id: int
    logprob: float
    alternatives: tuple[TokenAlternative, ...]


class Sampler:
    """One request's sampling: its parameters, its random numbers, and what it has sampled so far."""

    def __init__(self, params: SamplingParams, matcher: Matcher | None = None) -> None:
        self.params = params
        self._matcher = matcher
        self._biased = np.array([token for token, _ in params.logit_bias], np.int64)
        self._biases = np.array([bias for _, bias in params.logit_bias], np.float32)
        self._random = np.random.default_rng(params.seed)
        self._counts: dict[int, int] = {}
        self._room: Row = np.empty(0, np.float32)
        self._penalised = params.presence_penalty != 0 or params.frequency_penalty != 0

    def choose(self, logits: Row) -> Choice:
        """`logits` (V,) as llama.cpp computed them; they are not changed.

        Raises:
            ValueError: they hold a NaN or nothing but -inf, or the constraint leaves nothing else.
        """
        peak = logits.max()
        if not np.isfinite(peak):
            raise ValueError("the model computed logits that are not finite")
        weights = np.subtract(logits, peak, out=self._room_for(logits))
        np.exp(weights, out=weights)
        log_total = float(peak) + float(np.log(weights.sum()))
        token = self._pick(logits, weights)
        if self._matcher is not None:
            self._matcher.advance(token)
        if self._penalised:
            self._counts[token] = self._counts.get(token, 0) + 1
        alternatives: tuple[TokenAlternative, ...] = ()
        if self.params.top_logprobs:
            best = largest(logits, self.params.top_logprobs)
            alternatives = tuple(TokenAlternative(int(i), float(logits[i]) - log_total) for i in best)
        return Choice(token, float(logits[token]) - log_total, alternatives)

    def _room_for(self, logits: Row) -> Row:
        """Memory of this request's own: a fresh array of V would fault its pages in for every token."""
        if len(self._room) != len(logits):
            self._room = np.empty_like(logits)
        return self._room

    def _pick(self, logits: Row, weights: Row) -> int:
        """`weights` are exp(logits - max): what is wanted of free choice at temperature 1; they are used up."""
        shaped = self._shape(logits)
        if self.params.temperature < GREEDY_BELOW:
            return int(shaped.argmax())
        if shaped is not logits or self.params.temperature != 1:
            np.subtract(shaped, shaped.max(), out=weights)
            weights /= np.float32(self.params.temperature)
            np.exp(weights, out=weights)
        ids, weights = self._narrow(weights)
        index = draw(weights, self._random.random())
        return index if ids is None else int(ids[index])

    def _shape(self, logits: Row) -> Row:
        """The logits with penalties, biases and the constraint; the very same array if there are none."""
        penalised = self._penalised and bool(self._counts)
        if not penalised and not len(self._biased) and self._matcher is None:
            return logits
        shaped = logits.copy()
        if penalised:
            self._penalise(shaped)
        shaped[self._biased] += self._biases
        if self._matcher is not None:
            shaped[~self._matcher.allowed()] = -np.inf
            if not np.isfinite(shaped.max()):
                raise ValueError("the model gives no chance to any token that the answer's form allows")
        return shaped

    def _penalise(self, logits: Row) -> None:
        ids = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
        logits[ids] -= np.float32(self.params.presence_penalty) + np.float32(self.params.frequency_penalty) * counts

    def _narrow(self, weights: Row) -> tuple[Ids | None, Row]:
        """Apply top-k, top-p, min-p. Returns (ids, weights) of what may be chosen; ids none: all of V."""
        ids: Ids | None = None
        if 0 < self.params.top_k < len(weights):
            ids = largest(weights, self.params.top_k)
            weights = weights[ids]
        if self.params.top_p < 1:
            kept = nucleus(weights, self.params.top_p)
            ids = kept if ids is None else ids[kept]
            weights = weights[kept]
        if self.params.min_p > 0:
            # The largest weight is 1 unless penalties or temperature left no token there; it is never dropped.
            kept = np.flatnonzero(weights >= np.float32(self.params.min_p) * weights.max())
            ids = kept if ids is None else ids[kept]
            weights = weights[kept]
        return ids, weights


def draw(weights: Row, uniform: float) -> int:
    """An index with probability in proportion to `weights`, from a number in [0, 1).

    A long row is cut into blocks of entries whose numbers lie equally far apart, and drawn from in two steps.
    """
    blocks = len(weights) // BLOCK
    if blocks < BLOCK:
        return _draw_direct(weights, uniform)[0]
    cut = blocks * BLOCK
    sums = np.append(weights[:cut].reshape(BLOCK, blocks).sum(axis=0), weights[cut:].sum())
    block, within = _draw_direct(sums, uniform)
    if block == blocks:
        return cut + _draw_direct(weights[cut:], within)[0]
    return block + blocks * _draw_direct(weights[block:cut:blocks], within)[0]


def _draw_direct(weights: Row, uniform: float) -> tuple[int, float]:
    """(index, how far into its weight the draw fell, in [0, 1)). An entry of no weight is never drawn."""
    cumulative = np.cumsum(weights, dtype=np.float64)
    at = min(uniform * cumulative[-1], np.nextafter(cumulative[-1], 0))
    index = int(np.searchsorted(cumulative, at, side="right"))
    before = cumulative[index - 1] if index else 0.0
    return index, float((at - before) / (cumulative[index] - before))


def largest(values: Row, k: int) -> Ids:
    """Indices of the k largest of `values`, largest first, the lower index first among equals.

    The k-th largest of the blocks' maxima is at most the k-th largest value, so that nothing below it can belong.
    """
    blocks = len(values) // BLOCK
    candidates: Ids
    if k < blocks:
        maxima = values[: blocks * BLOCK].reshape(BLOCK, blocks).max(axis=0)
        floor = np.partition(maxima, blocks - k)[blocks - k]
        candidates = np.flatnonzero(values >= floor)
    else:
        candidates = np.arange(len(values))
    order = np.argsort(-values[candidates], kind="stable")[:k]
    return candidates[order]


def nucleus(weights: Row, top_p: float) -> Ids:
    """Indices, ascending, of the smallest set of the largest `weights` that holds at least `top_p` of their sum.

    Among equals at the edge the lower index belongs. Only weights above a floor are sorted; the floor falls until what
    is above it holds enough. Weights are at most about 1.
    """
    wanted = top_p * float(weights.sum(dtype=np.float64))
    floor = np.float32(FLOOR * weights.max())
    while True:
        candidates = np.flatnonzero(weights >= floor)
        above = weights[candidates]
        if floor == 0 or float(above.sum(dtype=np.float64)) >= wanted:
            break
        floor = floor * np.float32(FLOOR) if floor > SMALLEST else np.float32(0)
    descending = np.sort(above)[::-1]
    count = int(np.searchsorted(np.cumsum(descending, dtype=np.float64), wanted, side="left")) + 1
    if count >= len(descending):
        return candidates
    edge = descending[count - 1]
    kept = above > edge
    missing = count - int(kept.sum())
    kept[np.flatnonzero(above == edge)[:missing]] = True
    chosen: Ids = candidates[kept]
    return chosen
