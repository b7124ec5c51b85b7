"""Which answers aren't answers: empty, of one token, or going round in circles. One definition for judge and gate.

Looks at form alone; what an answer says, and whether it is true, is not told here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

SHORTEST = 2  # tokens besides the end token: of one token there is nothing to shape
LONGEST_PERIOD = 128  # tokens
FEWEST_REPEATS = 4
SHORTEST_REPETITION = 24  # tokens: "ha ha ha ha" is an answer
COMPRESSED_TEXT = 400  # characters from which the compression tells something
COMPRESSION_LIMIT = 8.0  # prose is near 2, code and tables below 5

EMPTY, ONE_TOKEN, REPEATING = "empty response", "response of one token", "response repeats itself endlessly"


def degenerate(ids: Sequence[int], text: str) -> str | None:
    """Why this is no answer; none: it is one. `ids` are its tokens without the end token."""
    if not ids or not text.strip():
        return EMPTY
    if len(ids) < SHORTEST:
        return ONE_TOKEN
    return REPEATING if repeats_itself(ids) or is_monotonous(text) else None


def repeats_itself(ids: Sequence[int]) -> bool:
    """Whether at least half of the sequence is one passage over and over, up to its end."""
    needed = max(SHORTEST_REPETITION, len(ids) // 2)
    for period in range(1, min(LONGEST_PERIOD, len(ids) // FEWEST_REPEATS) + 1):
        run = 0
        while run < len(ids) - period and ids[-1 - run] == ids[-1 - run - period]:
            run += 1
        if run + period >= max(needed, FEWEST_REPEATS * period):
            return True
    return False


def is_monotonous(text: str) -> bool:
    """Whether a long text hardly changes: repetitions that differ in a counter, which no fixed period shows."""
    data = text.encode()
    return len(text) >= COMPRESSED_TEXT and len(data) / len(zlib.compress(data, 9)) > COMPRESSION_LIMIT
