"""Which responses can't be trained on, whatever anybody thought of them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from clawd.store.records import Turn

SHORTEST_RESPONSE = 2  # tokens besides the end token: of one token there is nothing to shape
LONGEST_PERIOD = 128  # tokens
FEWEST_REPEATS = 4
SHORTEST_REPETITION = 24  # tokens: "ha ha ha ha" is an answer
COMPRESSED_TEXT = 400  # characters from which the compression tells something
COMPRESSION_LIMIT = 8.0  # prose is near 2, code and tables below 5


def unusable(turn: Turn) -> str | None:
    """Why nothing can be learnt from this response; none: it can be."""
    ended = turn.finish_reason == "stop"
    tokens = len(turn.response_ids) - ended
    if tokens <= 0 or not turn.response_text.strip():
        return "empty response"
    if tokens < SHORTEST_RESPONSE:
        return "response of one token"
    content = turn.response_ids[:tokens]
    if repeats_itself(content) or is_monotonous(turn.response_text):
        return "response repeats itself endlessly"
    return None


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
