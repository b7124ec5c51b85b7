"""A writer who knows nothing but what is allowed."""

from __future__ import annotations

import numpy as np

from clawd.model.vocab import Vocabulary
from clawd.server.engine.types import Constraint

ENDING = 40  # tokens after which it writes what comes to an end soonest
CLOSING = ('"', "}", "]", "\n")


class Writer:
    """Writes at random with the tokens of `vocabulary`.

    `shown`: tags that are tokens, whose text counts; `tags`: pairs of texts that open and close what isn't JSON.
    """

    def __init__(
        self, vocabulary: Vocabulary, shown: frozenset[int] = frozenset(), tags: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._vocabulary = vocabulary
        self._shown = shown
        self._ends = np.array([vocabulary.is_end(token) for token in range(vocabulary.size)])
        self._tags = tags

    def write(self, constraint: Constraint, seed: int) -> str:
        random = np.random.default_rng(seed)
        matcher = constraint.begin()
        data = b""
        planned: list[int] = []
        for place in range(2000):
            allowed = matcher.allowed()
            choices = allowed & ~self._ends
            if (allowed & self._ends).any() and (place > ENDING or not choices.any() or random.random() < 0.3):
                return data.decode()
            if place > ENDING and not planned:
                planned = self._close(data.decode("utf-8", "replace"), choices, random)
            if planned and choices[planned[0]]:
                token = planned.pop(0)
            else:
                planned = []
                token = int(random.choice(np.flatnonzero(choices)))
            data += self._vocabulary.token_bytes(token, special=token in self._shown)
            matcher.advance(token)
        raise AssertionError(f"no end: {data[-200:]!r}")

    def _close(self, written: str, choices: np.ndarray, random: np.random.Generator) -> list[int]:
        """Something that may end what is being written; none if nothing does."""
        open_tags = [closing for opening, closing in self._tags if written.count(opening) > written.count(closing)]
        spelled = [[self._vocabulary.tokenise(char)[0] for char in text] for text in (*CLOSING, *open_tags)]
        controls = [[token] for token in self._shown if choices[token]]
        possible = controls or [text for text in spelled if choices[text[0]]]
        return possible[random.integers(len(possible))] if possible else []
