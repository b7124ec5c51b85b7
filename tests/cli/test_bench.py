"""What `clawd bench` prints of a report."""

from __future__ import annotations

import json

import pytest
import typer

from clawd.bench.report import Goal, Report
from clawd.cli.report_view import print_report
from tests.bench.recorded import ROWS, report


def test_json_is_one_object_with_every_goal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        print_report(report(), True)
    assert ended.value.exit_code == 1  # goals are missed
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"bench", "command", "machine", "rows", "goals"}
    assert (told["bench"], told["command"]) == ("serve", "clawd bench serve")
    assert told["rows"] == ROWS
    assert len(told["goals"]) == 9
    for goal in told["goals"]:
        assert set(goal) == {"name", "value", "goal", "better", "ok"}
        kept = goal["value"] >= goal["goal"] if goal["better"] == "higher" else goal["value"] <= goal["goal"]
        assert goal["ok"] is kept


def test_tables_tell_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        print_report(report(), False)
    told = capsys.readouterr().out
    for row in ROWS:
        for column, value in row.items():
            assert column[:8] in told
            assert str(value)[:4] in told
    for goal in report().goals:
        assert goal.name[:12] in told


def test_status_is_0_if_every_goal_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(Report("start", "clawd bench start", [], [Goal("ready_s", 1.0, 4.0, "lower")]), False)
    assert "ready_s" in capsys.readouterr().out
