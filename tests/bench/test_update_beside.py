"""What is told of answers beside an update; and the whole of it on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bench.serve.client import Stream
from clawd.bench.serve.figures import pick
from clawd.bench.update import beside
from clawd.bench.update.beside import GOAL, Sizes, goals, rows, run
from clawd.config import LearnSettings
from tests.tiny_gguf import write_tiny_model


def stream(began_at: float, *token_times: float) -> Stream:
    return Stream(began_at, token_times, token_times[-1], "", "base", 1, 0)


def test_rows_by_hand() -> None:
    idle = [stream(0.0, 1.0, 1.1, 1.2), stream(5.0, 6.0, 6.1)]
    during = [stream(10.0, 12.0, 12.2, 12.4), stream(20.0, 20.5, 20.7, 29.0)]
    facts = {"ended": "staged", "ended_at": 21.0, "seconds": 11.0, "paused_s": 2.0, "tokens_per_s": 300}
    told = rows(idle, during, facts, pauses=False)
    (before,) = pick(told, what="between tokens", when="idle")
    (with_update,) = pick(told, what="between tokens", when="beside")
    assert (before["count"], before["median"], before["p95"]) == (3, 100.0, 100.0)
    assert (with_update["count"], with_update["worst"]) == (3, 200.0)  # what came after the end is left out
    (first,) = pick(told, what="first token", when="beside")
    assert (first["count"], first["worst"]) == (2, 2000.0)
    (update,) = pick(told, what="update")
    assert update["p95_over_idle"] == 2.0
    assert update["paused_s"] == 2.0 and "ended_at" not in update


def test_the_goal_is_of_clawd_as_it_comes() -> None:
    default = LearnSettings().pause_when_busy
    told = [{"what": "update", "pauses": default, "p95_over_idle": 1.2}]
    told += [{"what": "update", "pauses": not default, "p95_over_idle": 2.2}]
    (goal,) = goals(told)
    assert (goal.name, goal.value, goal.ok) == (GOAL, 1.2, True)
    (missed,) = goals([])
    assert missed.value is None and not missed.ok


@pytest.mark.bench
def test_every_figure_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "QUICK", Sizes(samples=4, idle_answers=2))
    monkeypatch.setattr(beside, "REST_S", 0.05)
    model = write_tiny_model(tmp_path / "tiny.gguf", context=2048)
    steps: list[str] = []
    report = run(model, quick=True, say=steps.append)
    assert [goal.name for goal in report.goals] == [GOAL] and report.goals[0].value is not None
    without, with_pauses = pick(report.rows, what="update")
    assert without["paused_s"] == 0 < with_pauses["paused_s"]
    assert {row["count"] for row in pick(report.rows, what="first token", when="idle")} == {4}
    assert all(row["count"] > 0 for row in pick(report.rows, when="beside"))
    assert len(steps) == 2
