"""From one row of raw logits to a token, its log-probability and the alternatives.

Axis V is the vocabulary; all rows are float32 (V,). The recorded log-probability is that of the full vocabulary at
temperature 1, from the raw logits. Penalties, temperature, top-k, top-p and min-p, in this order, shape the choice
alone. Nothing sorts the vocabulary: a threshold that provably keeps every candidate comes first, and only what is
above it is sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clawd.server.engine.types import SamplingParams, TokenAlternative

Row = NDArray[np.float32]
Ids = NDArray[np.int64]
BLOCK = 64  # entries of V per block when the k largest are looked for


@dataclass(frozen=True)
class Choice:
    id: int
    logprob: float
    alternatives: tuple[TokenAlternative, ...]


class Sampler:
    """One request's sampling: its parameters, its random numbers, and what it has sampled so far."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self._random = np.random.default_rng(params.seed)
        self._counts: dict[int, int] = {}
        self._penalised = params.presence_penalty != 0 or params.frequency_penalty != 0

    def choose(self, logits: Row) -> Choice:
        """`logits` (V,) as llama.cpp computed them; they are not changed.

        Raises:
            ValueError: they hold a NaN or nothing but -inf, from which no choice can be made.
        """
        peak = logits.max()
        if not np.isfinite(peak):
            raise ValueError("the model computed logits that are not finite")
        weights = np.exp(logits - peak)
        log_total = float(peak) + float(np.log(weights.sum()))
        token = self._pick(logits, weights)
        if self._penalised:
            self._counts[token] = self._counts.get(token, 0) + 1
        alternatives: tuple[TokenAlternative, ...] = ()
        if self.params.top_logprobs:
            best = largest(logits, self.params.top_logprobs)
            alternatives = tuple(TokenAlternative(int(i), float(logits[i]) - log_total) for i in best)
        return Choice(token, float(logits[token]) - log_total, alternatives)

    def _pick(self, logits: Row, weights: Row) -> int:
        """`weights` are exp(logits - max): what is wanted at temperature 1 without penalties."""
        if self._penalised and self._counts:
            logits = self._penalise(logits)
            weights = np.exp(logits - logits.max())
        if self.params.temperature == 0:
            return int(logits.argmax())
        if self.params.temperature != 1:
            scaled = logits - logits.max()
            scaled /= np.float32(self.params.temperature)
            weights = np.exp(scaled)
        ids, weights = self._narrow(weights)
        cumulative = np.cumsum(weights, dtype=np.float64)
        index = int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))
        index = min(index, len(weights) - 1)
        return index if ids is None else int(ids[index])

    def _penalise(self, logits: Row) -> Row:
        logits = logits.copy()
        ids = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
        logits[ids] -= np.float32(self.params.presence_penalty) + np.float32(self.params.frequency_penalty) * counts
        return logits

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


def largest(values: Row, k: int) -> Ids:
    """Indices of the k largest of `values`, largest first, the lower index first among equals.

    The k-th largest of the blocks' maxima is at most the k-th largest value, so that nothing below it can belong.
    """
    blocks = len(values) // BLOCK
    candidates: Ids
    if k < blocks:
        maxima = values[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
        floor = np.partition(maxima, blocks - k)[blocks - k]
        candidates = np.flatnonzero(values >= floor)
    else:
        candidates = np.arange(len(values))
    order = np.argsort(-values[candidates], kind="stable")[:k]
    return candidates[order]


def nucleus(weights: Row, top_p: float) -> Ids:
    """Indices of the smallest set of the largest `weights` that holds at least `top_p` of their sum, largest first.

    All entries of at most (1 - top_p) · sum / V hold at most 1 - top_p together, so that they can be left out first.
    """
    total = float(weights.sum(dtype=np.float64))
    candidates = np.flatnonzero(weights > np.float32((1.0 - top_p) * total / len(weights) * 0.999))
    candidates = candidates[np.argsort(-weights[candidates], kind="stable")]
    cumulative = np.cumsum(weights[candidates], dtype=np.float64)
    count = int(np.searchsorted(cumulative, top_p * total, side="left")) + 1
    return candidates[:count]
