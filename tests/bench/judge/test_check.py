"""`clawd judge check`: its figures, and that it tells what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawd.bench.judge.check import run
from clawd.bench.judge.labelled import read_labelled
from clawd.errors import LabelsRefused
from tests.cli.command import clawd


def written(folder: Path, cases: object) -> Path:
    file = folder / "replies.json"
    file.write_text(json.dumps(cases), encoding="utf-8")
    return file


def test_figures(tmp_path: Path) -> None:
    cases = [
        {"reply": "Perfect, thanks!", "score": 1},
        {"reply": "No, that's wrong.", "score": -1},
        {"reply": "Please keep it short.", "score": -1, "correction": True},
        {"reply": "Xyzzy.", "score": 1},
        {"reply": "That's wrong.", "score": 1},
        {"reply": "And on Monday?", "score": 0},
    ]
    report = run(written(tmp_path, cases))
    figures, *misread = report.rows
    assert (figures["replies"], figures["wrong_signs"], figures["false_signals"]) == (6, 1, 0.0)
    assert (figures["read_right"], figures["signal_precision"], figures["signal_recall"]) == (0.6667, 0.75, 0.6)
    assert (figures["complaint_recall"], figures["praise_recall"]) == (1.0, 0.3333)
    assert (figures["hint_precision"], figures["hint_recall"]) == (1.0, 1.0)
    assert [row["misread"] for row in misread] == ["Xyzzy.", "That's wrong."]
    assert [goal.name for goal in report.goals if not goal.ok] == ["read_right", "signal_precision", "wrong_signs"]


def test_a_figure_without_cases_is_no_goal(tmp_path: Path) -> None:
    report = run(written(tmp_path, [{"reply": "Perfect!", "score": 1}]))
    assert report.rows[0]["false_signals"] is None
    assert "false_signals" not in [goal.name for goal in report.goals]


@pytest.mark.parametrize(
    "cases", [{}, [], [{"reply": "x"}], [{"reply": "x", "score": 2}], [{"reply": "x", "score": 1, "hnit": True}]]
)
def test_other_files_are_refused(tmp_path: Path, cases: object) -> None:
    with pytest.raises(LabelsRefused, match=r"replies\.json"):
        read_labelled(written(tmp_path, cases))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LabelsRefused, match="can't be read"):
        read_labelled(tmp_path / "none.json")


def test_the_command_needs_no_file(tmp_path: Path) -> None:
    done = clawd(tmp_path, "judge", "check", "--json")
    told = json.loads(done.stdout)
    assert set(told) == {"bench", "command", "machine", "rows", "goals"}
    assert told["rows"][0]["replies"] >= 200
    assert done.returncode == (0 if all(goal["ok"] for goal in told["goals"]) else 1)


def test_the_command_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    done = clawd(tmp_path, "judge", "check", str(tmp_path / "none.json"))
    assert done.returncode == LabelsRefused.exit_status and "none.json" in done.stderr
