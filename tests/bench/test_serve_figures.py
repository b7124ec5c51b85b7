"""The arithmetic of `clawd bench serve`, by hand."""

from __future__ import annotations

import pytest

from clawd.bench.serve import figures
from clawd.bench.serve.adapters import Swap
from clawd.bench.serve.client import Stream
from clawd.bench.serve.swaps import rows, sort_gaps
from clawd.errors import BenchFailed
from tests.bench.recorded import ROWS


def stream(began_at: float, times: list[float], version: str, error: str | None = None) -> Stream:
    return Stream(began_at, tuple(times), times[-1] if times else began_at, "text", version, 9, 0, error)


def test_rate_counts_the_time_when_all_streams_run() -> None:
    # From 2.0, when the second begins, to 4.0, when the first ends: 2.5, 3, 4 of one and 3, 4 of the other.
    assert figures.total_rate([[0, 1, 2, 2.5, 3, 4], [2, 3, 4, 5, 6, 7]]) == 5 / 2


def test_rate_of_one_stream_is_tokens_per_interval() -> None:
    assert figures.total_rate([[1.0, 1.5, 2.0, 2.5]]) == 2.0


def test_streams_that_never_ran_together_have_no_rate() -> None:
    with pytest.raises(BenchFailed):
        figures.total_rate([[0, 1], [2, 3]])


def test_p95_lies_between_its_neighbours() -> None:
    assert figures.p95([float(n) for n in range(1, 22)]) == 20.0  # of 1 … 21: 5 % of 20 steps below the top
    assert figures.p95([0.0, 1.0]) == pytest.approx(0.95)


def test_spread_is_told_in_the_unit_asked_for() -> None:
    assert figures.spread([0.1, 0.2, 0.4], 1000, 1) == {"count": 3, "median": 200.0, "p95": 380.0, "worst": 400.0}


def test_a_ratio_is_made_of_values_of_one_round() -> None:
    assert figures.paired([1.0, 6.0], [2.0, 4.0]) == [0.5, 1.5]
    with pytest.raises(ValueError, match="shorter"):
        figures.paired([1.0, 2.0], [1.0])


def test_a_gap_belongs_to_what_went_on_when_its_token_came() -> None:
    old = stream(0.0, [1.0, 2.0, 3.0, 4.0, 6.0], "v1")  # ends at 6, after v2 has taken over at 3.5
    new = stream(6.5, [7.0, 8.0], "v2")
    sorted_gaps = sort_gaps([old, new], [Swap(2, 2.5, 3.5)])
    assert sorted_gaps == {"no swap": [1.0, 1.0], "swap goes on": [1.0], "two versions answer": [1.0, 2.0]}


def test_a_failed_request_is_counted_and_its_reason_told() -> None:
    streams = [stream(0.0, [1.0, 2.0], "v1"), stream(2.0, [], "", "ReadError: reset"), stream(3.0, [4.0, 5.0], "v2")]
    (swaps, *waits) = rows(streams, [Swap(2, 2.5, 3.0)], 0)
    assert (swaps["requests"], swaps["failed_requests"], swaps["first_failure"]) == (3, 1, "ReadError: reset")
    assert [row["when"] for row in waits] == ["no swap"]


def test_goals_come_from_the_rows() -> None:
    values = {goal.name: (goal.value, goal.ok) for goal in figures.goals(ROWS)}
    assert values == {
        "decode_1_stream_over_bare": (0.96, False),
        "total_8_streams_one_adapter_over_bare": (0.94, True),
        "total_8_streams_four_adapters_over_one": (0.6, False),
        "second_turn_first_token_over_cold_start": (0.02, True),
        "failed_requests_in_swaps": (0, True),
        "first_token_after_swap_over_without": (1.2, True),
        "p95_between_tokens_in_swap_over_without": (1.25, False),
        "p95_first_token_judge_queue_full_over_empty": (1.2, True),
        "start_to_ready_s": (2.8, True),
    }


@pytest.mark.parametrize("what", ["streams", "long session", "swaps", "between tokens", "first token", "start"])
def test_a_figure_that_was_not_measured_is_missed_not_left_out(what: str) -> None:
    found = figures.goals([row for row in ROWS if row["what"] != what])
    assert len(found) == len(figures.GOALS)
    missing = [goal for goal in found if goal.value is None]
    assert missing
    assert not any(goal.ok for goal in missing)
