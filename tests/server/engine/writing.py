"""A writer who knows nothing but what is allowed."""

from __future__ import annotations

import numpy as np

from clawd.model.vocab import Vocabulary
from clawd.server.engine.types import Constraint

ENDING = 40  # tokens after which it writes what comes to an end soonest


class Writer:
    """Writes at random with the tokens of `vocabulary`; the text of those in `shown` counts, though they are control."""

    def __init__(self, vocabulary: Vocabulary, shown: frozenset[int] = frozenset()) -> None:
        self._vocabulary = vocabulary
        self._shown = shown
        self._ends = np.array([vocabulary.is_end(token) for token in range(vocabulary.size)])
        pieces = [vocabulary.token_bytes(token) for token in range(vocabulary.size)]
        self._closing = np.array([piece in (b'"', b"}", b"]", b"<", b"\n") for piece in pieces])

    def write(self, constraint: Constraint, seed: int) -> str:
        random = np.random.default_rng(seed)
        matcher = constraint.begin()
        data = b""
        for place in range(2000):
            allowed = matcher.allowed()
            choices = allowed & ~self._ends
            may_end = bool((allowed & self._ends).any())
            if may_end and (place > ENDING or not choices.any() or random.random() < 0.3):
                return data.decode()
            if place > ENDING and (choices & self._closing).any():
                choices &= self._closing
            token = int(random.choice(np.flatnonzero(choices)))
            data += self._vocabulary.token_bytes(token, special=token in self._shown)
            matcher.advance(token)
        raise AssertionError(f"no end: {data[-200:]!r}")
