"""Swaps under 8 streams of the very adapter that is swapped: what fails, and what becomes of the time between tokens.

A token belongs to "swap goes on" if it came between the moment when a version lay ready and the one when it answered;
to "two versions answer" if it came after that and before the last answer under an older version had ended; else to
"no swap". For the last swap there is a conversation to read ahead, so that its going on is mostly warming.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from clawd.bench.serve.adapters import Swap
from clawd.bench.serve.client import Client, Load, Stream
from clawd.bench.serve.figures import Row, gaps, inside, spread

STREAMS = 8
ANSWER_TOKENS = 24
CALM_S = 0.7


def measure(client: Client, count: int, swap: Callable[[], Swap], hold: Callable[[], int]) -> list[Row]:
    """`swap` publishes and returns when the version answers; `hold` opens a conversation worth warming: its tokens."""
    swaps: list[Swap] = []
    held = 0
    with Load(client, STREAMS, ANSWER_TOKENS) as load:
        load.wait_for_turnover()
        for number in range(1, count + 1):
            if number == count:
                held = hold()
            time.sleep(CALM_S)
            swaps.append(swap())
            load.wait_for_turnover()
    return rows(load.all(), swaps, held)


def rows(streams: Sequence[Stream], swaps: Sequence[Swap], held_tokens: int) -> list[Row]:
    """From what was seen to what is told."""
    lasting = [swap.active_at - swap.published_at for swap in swaps]
    failures = [stream.error for stream in streams if stream.error]
    told: list[Row] = [
        {
            "what": "swaps",
            "swaps": len(swaps),
            "requests": len(streams),
            "failed_requests": len(failures),
            "first_failure": failures[0] if failures else None,
            "versions_seen": len({stream.version for stream in streams}),
            "swap_median_s": round(statistics.median(lasting), 3),
            "last_swap_s": round(lasting[-1], 2),
            "tokens_to_warm_in_last": held_tokens,
        }
    ]
    for when, values in sort_gaps(streams, swaps).items():
        if values:
            told.append({"what": "between tokens", "when": when, "unit": "ms", **spread(values, 1000, 1)})
    return told


def sort_gaps(streams: Sequence[Stream], swaps: Sequence[Swap]) -> dict[str, list[float]]:
    """Seconds between the tokens of each stream, by what went on when the later one came."""
    going_on = [(swap.published_at, swap.active_at) for swap in swaps]
    two_versions = [(swap.active_at, _old_ended(swap, streams)) for swap in swaps]
    sorted_gaps: dict[str, list[float]] = {"no swap": [], "swap goes on": [], "two versions answer": []}
    for stream in streams:
        for at, gap in gaps(stream.token_times):
            if inside(at, going_on):
                when = "swap goes on"
            else:
                when = "two versions answer" if inside(at, two_versions) else "no swap"
            sorted_gaps[when].append(gap)
    return sorted_gaps


def _old_ended(swap: Swap, streams: Sequence[Stream]) -> float:
    """When the last answer under an older version had ended."""
    older = (s.ended_at for s in streams if s.began_at <= swap.active_at and s.version != f"v{swap.number}")
    return max(older, default=swap.active_at)
