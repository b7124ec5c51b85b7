"""`clawd bench serve` from beginning to end on a tiny model: real daemons, real adapters, real swaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bench.serve import judge_queue, streams
from clawd.bench.serve.figures import goals, pick
from clawd.bench.serve.run import Sizes, measure
from tests.tiny_gguf import write_tiny_model

SMALL = Sizes(
    streams=streams.Sizes(rounds=1, rounds_of_one=1, tokens=400),
    long_sessions=1,
    long_tokens=400,
    swaps=2,
    warm=True,
    judge_queue=judge_queue.Sizes(blocks=1, requests=2),
    starts=1,
)


@pytest.mark.bench
def test_every_figure_is_measured(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf", context=8192)
    steps: list[str] = []
    rows = measure(model, SMALL, steps.append)
    assert all(goal.value is not None for goal in goals(rows))
    assert [(row["streams"], row["adapters"]) for row in pick(rows, what="streams")] == [
        (1, 0), (2, 0), (4, 0), (8, 0), (8, 1), (8, 4),
    ]  # fmt: skip
    (session,) = pick(rows, what="long session")
    assert session["first_turn_tokens"] > 400
    assert session["answered_by"] == "v2"
    (swaps,) = pick(rows, what="swaps")
    assert (swaps["swaps"], swaps["failed_requests"], swaps["versions_seen"]) == (2, 0, 3)
    assert swaps["tokens_to_warm_in_last"] > 256
    assert [row["count"] for row in pick(rows, what="first token")] == [2, 2]
    assert len(steps) == 5
