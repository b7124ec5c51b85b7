"""How well the rules judge reads labelled replies.

A wrong signal costs more than a missed one, so precision and wrong signs are told apart from recall. A rate without
cases to take it from is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clawd.bench.judge.labelled import Labelled, read_labelled
from clawd.bench.report import Goal, Report
from clawd.learner.judge.rules import Reading, read_reply

READ_RIGHT_GOAL = 0.7
PRECISION_GOAL = 0.95
FALSE_SIGNAL_GOAL = 0.02

Read = tuple[Labelled, Reading]


def run(file: Path | None = None, command: str = "clawd judge check") -> Report:
    """Measure on `file`, by default on the replies that come with clawd."""
    read = [(case, read_reply(case.asked, case.response, case.reply)) for case in read_labelled(file)]
    figures = measure(read)
    goals = [
        Goal("read_right", figures["read_right"], READ_RIGHT_GOAL, "higher"),
        Goal("signal_precision", figures["signal_precision"], PRECISION_GOAL, "higher"),
        Goal("wrong_signs", figures["wrong_signs"], 0, "lower"),
        Goal("false_signals", figures["false_signals"], FALSE_SIGNAL_GOAL, "lower"),
    ]
    # What can't be taken from these replies isn't missed: a file of praise alone has no neutral ones.
    rows = [figures, *map(_misread, read_wrong(read))]
    return Report("judge", command, rows, [goal for goal in goals if goal.value is not None])


def measure(read: Sequence[Read]) -> dict[str, Any]:
    """Shares of 1, but `wrong_signs`, which counts; a signal is a score other than 0."""
    signals = [(case, found) for case, found in read if found.score]
    meant = [(case, found) for case, found in read if case.score]
    neutral = [(case, found) for case, found in read if not case.score]
    return {
        "replies": len(read),
        "read_right": _share(read, lambda case, found: case.score == found.score),
        "signal_precision": _share(signals, lambda case, found: case.score == found.score),
        "signal_recall": _share(meant, lambda case, found: case.score == found.score),
        "complaint_recall": _share([one for one in meant if one[0].score < 0], lambda _, found: found.score < 0),
        "praise_recall": _share([one for one in meant if one[0].score > 0], lambda _, found: found.score > 0),
        "wrong_signs": sum(case.score * found.score < 0 for case, found in read),
        "false_signals": _share(neutral, lambda _, found: found.score != 0),
        "hint_precision": _share([one for one in read if one[1].hint], lambda case, _: case.correction),
        "hint_recall": _share([one for one in read if one[0].correction], lambda _, found: found.hint is not None),
    }


def read_wrong(read: Sequence[Read]) -> list[Read]:
    return [(case, found) for case, found in read if case.score != found.score]


def _misread(one: Read) -> dict[str, Any]:
    case, found = one
    return {"misread": case.reply, "meant": case.score, "read_as": found.score, "rules": ", ".join(found.rules)}


def _share(read: Sequence[Read], holds: Any) -> float | None:
    return round(sum(bool(holds(*one)) for one in read) / len(read), 4) if read else None
