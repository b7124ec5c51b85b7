"""Rows as a run of `clawd bench serve` told them."""

from __future__ import annotations

from typing import Any

from clawd.bench.report import Report
from clawd.bench.serve.figures import goals


def streams(count: int, adapters: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "what": "streams",
        "streams": count,
        "adapters": adapters,
        "tokens_per_s": 60.0 + 8 * count,
        "tokens_per_s_per_stream": round((60.0 + 8 * count) / count, 1),
        "first_token_median_s": 0.1 * count,
        "first_token_p95_s": 0.12 * count,
        "prompt_tokens": 45,
        "bare_tokens_per_s": 70.0 + 8 * count,
        **more,
    }


def compared(count: int, adapters: int, over_bare: float) -> dict[str, Any]:
    more = {"engine_tokens_per_s": 66.0 + 8 * count, "engine_over_bare": over_bare, "clients_over_bare": 0.8}
    return streams(count, adapters, **more, engine_over_bare_range=[0.8, 1.0])


def long_session(after_swap_over_without: float, second_over_cold: float) -> dict[str, Any]:
    return {
        "what": "long session",
        "first_turn_tokens": 3012,
        "cold_start_s": 20.0,
        "second_turn_s": 0.2,
        "second_over_cold": second_over_cold,
        "without_swap_s": 0.2,
        "after_swap_s": 0.21,
        "after_swap_over_without": after_swap_over_without,
        "swap_s": 21.5,
        "answered_by": "v2",
    }


def waits(what: str, when: str, p95: float) -> dict[str, Any]:
    return {"what": what, "when": when, "unit": "ms", "count": 40, "median": 90.0, "p95": p95, "worst": 2 * p95}


ROWS: list[dict[str, Any]] = [
    {"what": "model", "file": "SmolLM2-135M-Instruct.Q4_1.gguf", "megabytes": 98.1},
    *({"what": "start", "round": number, "ready_s": seconds} for number, seconds in ((1, 2.7), (2, 9.0), (3, 2.8))),
    compared(1, 0, 0.96),
    *(compared(count, 0, 0.95) for count in (2, 4, 8)),
    compared(8, 1, 0.94),
    streams(8, 4, bare_batch=2, over_one_adapter=0.6, over_one_adapter_range=[0.5, 0.7]),
    *(long_session(swap, cold) for swap, cold in ((1.1, 0.01), (1.2, 0.02), (5.0, 0.5))),
    {
        "what": "swaps",
        "swaps": 20,
        "requests": 240,
        "failed_requests": 0,
        "first_failure": None,
        "versions_seen": 21,
        "swap_median_s": 0.3,
        "last_swap_s": 9.0,
        "tokens_to_warm_in_last": 330,
    },
    waits("between tokens", "no swap", 100.0),
    waits("between tokens", "swap goes on", 125.0),
    waits("between tokens", "two versions answer", 250.0),
    waits("first token", "empty", 100.0),
    waits("first token", "judge queue full", 120.0),
]


def report() -> Report:
    return Report("serve", "clawd bench serve", ROWS, goals(ROWS))
