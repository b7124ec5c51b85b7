"""Which answers aren't answers: empty, of one token, or going round in circles. One definition for judge and gate.

Looks at form alone; what an answer says, and whether it is true, is not told here.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence

SHORTEST = 2  # tokens besides the end token: of one token there is nothing to shape
LONGEST_PERIOD = 128  # tokens
FEWEST_REPEATS = 4
SHORTEST_REPETITION = 24  # tokens: "ha ha ha ha" is an answer
COMPRESSED_TEXT = 400  # characters from which the compression tells something
COMPRESSION_LIMIT = 8.0  # prose is near 2, code and tables below 5

WORDS = re.compile(r"\w+")
WINDOW = 3  # words
FEWEST_WINDOWS = 24
MOST_REPEATED = (
    0.6  # share of windows that have stood there before; code and tables have other names and numbers in each line
)

EMPTY, ONE_TOKEN, REPEATING = "empty response", "response of one token", "response repeats itself endlessly"


def degenerate(ids: Sequence[int], text: str) -> str | None:
    """Why this is no answer; none: it is one. `ids` are its tokens without the end token."""
    if not ids or not text.strip():
        return EMPTY
    if len(ids) < SHORTEST:
        return ONE_TOKEN
    return REPEATING if repeats_itself(ids) or is_monotonous(text) or is_chant(text) else None


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


def is_chant(text: str) -> bool:
    """Whether most of it is the same few words in changing order, which is shorter than `is_monotonous` can tell."""
    words = WORDS.findall(text.lower())
    windows = Counter(zip(*(words[start:] for start in range(WINDOW)), strict=False))
    count = windows.total()
    return count >= FEWEST_WINDOWS and (count - len(windows)) / count > MOST_REPEATED
