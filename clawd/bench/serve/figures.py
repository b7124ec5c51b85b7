"""The arithmetic: rates, quantiles, paired ratios, and the goals from the rows. No clock, no daemon."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from clawd.bench.report import Goal
from clawd.errors import BenchFailed

Row = dict[str, Any]

GOALS: tuple[tuple[str, float, Literal["higher", "lower"]], ...] = (
    ("decode_1_stream_over_bare", 0.97, "higher"),
    ("total_8_streams_one_adapter_over_bare", 0.93, "higher"),
    ("total_8_streams_four_adapters_over_one", 0.75, "higher"),
    ("second_turn_first_token_over_cold_start", 0.1, "lower"),
    ("failed_requests_in_swaps", 0, "lower"),
    ("first_token_after_swap_over_without", 1.3, "lower"),
    ("p95_between_tokens_in_swap_over_without", 1.2, "lower"),
    ("p95_first_token_judge_queue_full_over_empty", 1.2, "lower"),
    ("start_to_ready_s", 4, "lower"),
)


def p95(values: Sequence[float]) -> float:
    """Interpolated between the two nearest values."""
    return float(np.quantile(values, 0.95))


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 4) -> Row:
    """What a row tells of many measured values."""
    return {
        "count": len(values),
        "median": round(statistics.median(values) * scale, digits),
        "p95": round(p95(values) * scale, digits),
        "worst": round(max(values) * scale, digits),
    }


def total_rate(streams: Sequence[Sequence[float]]) -> float:
    """Tokens per second of all streams together, from their tokens' times, while all of them run.

    From the moment when the last one has its first token to the one when the first ends.

    Raises:
        BenchFailed: there is no such time.
    """
    begin, end = max(times[0] for times in streams), min(times[-1] for times in streams)
    if end <= begin:
        raise BenchFailed("Streams that were begun together did not run together: the model's answers are too short.")
    return sum(begin < at <= end for times in streams for at in times) / (end - begin)


def gaps(times: Sequence[float]) -> list[tuple[float, float]]:
    """(time of a token, seconds since the one before) of one stream."""
    return [(at, at - before) for before, at in itertools.pairwise(times)]


def inside(at: float, windows: Iterable[tuple[float, float]]) -> bool:
    return any(begin <= at <= end for begin, end in windows)


def paired(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Ratios of values that were measured one right after the other, so that the machine's drift is in both."""
    return [round(a / b, 3) for a, b in zip(above, below, strict=True)]


def goals(rows: Sequence[Row]) -> list[Goal]:
    """All that were promised, in order; one whose rows are missing has no value, and is missed."""
    values = {
        "decode_1_stream_over_bare": _one(rows, "engine_over_bare", what="streams", streams=1, adapters=0),
        "total_8_streams_one_adapter_over_bare": _one(rows, "engine_over_bare", what="streams", streams=8, adapters=1),
        "total_8_streams_four_adapters_over_one": _one(rows, "over_one_adapter", what="streams", streams=8, adapters=4),
        "second_turn_first_token_over_cold_start": _median(rows, "second_over_cold", what="long session"),
        "failed_requests_in_swaps": _one(rows, "failed_requests", what="swaps"),
        "first_token_after_swap_over_without": _median(rows, "after_swap_over_without", what="long session"),
        "p95_between_tokens_in_swap_over_without": _ratio(rows, "between tokens", "swap goes on", "no swap"),
        "p95_first_token_judge_queue_full_over_empty": _ratio(rows, "first token", "judge queue full", "empty"),
        "start_to_ready_s": _median(rows, "ready_s", what="start"),
    }
    return [Goal(name, values[name], goal, better) for name, goal, better in GOALS]


def pick(rows: Iterable[Row], **named: Any) -> list[Row]:
    """The rows with these entries."""
    return [row for row in rows if all(row.get(key) == value for key, value in named.items())]


def _one(rows: Sequence[Row], column: str, **named: Any) -> float | None:
    found = [row[column] for row in pick(rows, **named)]
    return found[0] if found else None


def _median(rows: Sequence[Row], column: str, **named: Any) -> float | None:
    found = [row[column] for row in pick(rows, **named)]
    return round(statistics.median(found), 3) if found else None


def _ratio(rows: Sequence[Row], what: str, above: str, below: str) -> float | None:
    """Of two p95."""
    over, under = (_one(rows, "p95", what=what, when=when) for when in (above, below))
    return None if over is None or under is None else round(over / under, 3)
