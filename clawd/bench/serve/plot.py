"""The plot of a report, from its rows alone: speed, first tokens, the long session, waits, and each goal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clawd.bench.report import Goal, Report
from clawd.bench.serve.figures import Row, pick

SIDES = (
    ("bare_tokens_per_s", "bare loop", "#9aa0a6"),
    ("engine_tokens_per_s", "engine, in process", "#5b8def"),
    ("tokens_per_s", "daemon's clients", "#1a4fa3"),
)
MET, MISSED = "#2e8b57", "#c0392b"
LONG_SESSION = (
    ("cold_start_s", "cold start"),
    ("second_turn_s", "second turn"),
    ("without_swap_s", "later turn,\nno swap"),
    ("after_swap_s", "first turn\nafter a swap"),
)
WIDTH = 0.27
WIDEST_MARGIN = 2.0  # of a goal: a figure ten times better than promised would flatten all others


def draw(report: Report, path: Path) -> None:
    """Write `path`; its ending names the format (.png, .svg, .pdf)."""
    figure = Figure(figsize=(12, 13), layout="constrained")
    grid = figure.add_gridspec(2, 1, height_ratios=(2, 1))
    above, below = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    speed, first_tokens, long_session, waits = above.subplots(2, 2).flat
    streams = pick(report.rows, what="streams")
    _speed(speed, streams)
    _first_tokens(first_tokens, streams)
    _long_session(long_session, pick(report.rows, what="long session"))
    _waits(waits, report.rows)
    _goals(below.subplots(), report.goals)
    figure.suptitle(report.command)
    figure.savefig(path, dpi=120)


def _labels(streams: Sequence[Row]) -> list[str]:
    return [f"{row['streams']}" + (f"\nover {row['adapters']}" if row["adapters"] else "") for row in streams]


def _speed(axes: Axes, streams: Sequence[Row]) -> None:
    axes.set(
        title="Tokens per second, all streams together", xlabel="streams (over so many adapters; else the bare base)"
    )
    for place, (column, name, colour) in enumerate(SIDES):
        at = [i for i, row in enumerate(streams) if column in row]
        bars = axes.bar(
            [i + (place - 1) * WIDTH for i in at], [streams[i][column] for i in at], WIDTH, label=name, color=colour
        )
        axes.bar_label(bars, fmt="%.0f", fontsize=7)
    axes.set_xticks(range(len(streams)), _labels(streams))
    axes.legend(fontsize=8)


def _first_tokens(axes: Axes, streams: Sequence[Row]) -> None:
    axes.set(
        title="Seconds to the first token of a new, short prompt",
        xlabel="streams (over so many adapters; else the bare base)",
    )
    for place, (column, name, colour) in enumerate(
        (("first_token_median_s", "median", "#5b8def"), ("first_token_p95_s", "p95", "#1a4fa3"))
    ):
        at = [i + (place - 0.5) * 1.3 * WIDTH for i in range(len(streams))]
        bars = axes.bar(at, [row[column] for row in streams], 1.3 * WIDTH, label=name, color=colour)
        axes.bar_label(bars, fmt="%.2f", fontsize=6)
    axes.set_xticks(range(len(streams)), _labels(streams))
    axes.legend(fontsize=8)


def _long_session(axes: Axes, sessions: Sequence[Row]) -> None:
    tokens = sessions[0]["first_turn_tokens"] if sessions else 0
    axes.set(title=f"Seconds to the first token, session of {tokens} tokens (log)", yscale="log")
    medians = [statistics.median(row[column] for row in sessions) for column, _ in LONG_SESSION if sessions]
    bars = axes.bar(range(len(medians)), medians, 0.6, color="#5b8def")
    axes.bar_label(bars, fmt="%.2f", fontsize=8, padding=6)
    for place, (column, _) in enumerate(LONG_SESSION):
        axes.scatter([place] * len(sessions), [row[column] for row in sessions], s=12, color="black", zorder=3)
    axes.set_xticks(range(len(LONG_SESSION)), [name for _, name in LONG_SESSION])
    if medians:
        axes.set_ylim(min(medians) / 3, max(medians) * 3)


def _waits(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set(title="Milliseconds, median and p95", xlabel="ms")
    waits = [row for row in rows if row["what"] in ("between tokens", "first token")]
    names = [f"{row['what']}:\n{row['when']}" for row in waits]
    for place, (column, colour) in enumerate((("median", "#5b8def"), ("p95", "#1a4fa3"))):
        at = [i + (place - 0.5) * 1.3 * WIDTH for i in range(len(waits))]
        bars = axes.barh(at, [row[column] for row in waits], 1.3 * WIDTH, label=column, color=colour)
        axes.bar_label(bars, fmt="%.0f", fontsize=7, padding=2)
    axes.set_yticks(range(len(waits)), names, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.legend(fontsize=8)


def _goals(axes: Axes, goals: Sequence[Goal]) -> None:
    axes.set(title="Goals: how far each figure is on the good side of its line (1 = just met)", xlim=(0, WIDEST_MARGIN))
    bars = axes.barh(
        range(len(goals)), [margin(goal) for goal in goals], 0.6, color=[MET if g.ok else MISSED for g in goals]
    )
    axes.axvline(1, color="black", linewidth=1)
    for text in axes.bar_label(bars, [_words(goal) for goal in goals], fontsize=8, padding=3):
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
    axes.set_yticks(range(len(goals)), [goal.name.replace("_", " ") for goal in goals], fontsize=8)
    axes.set_xlim(0, WIDEST_MARGIN * 1.25)
    axes.invert_yaxis()


def margin(goal: Goal) -> float:
    """1: just met; above: better than promised, cut at `WIDEST_MARGIN`; 0: not measured, or some where none may be."""
    if goal.value is None:
        return 0.0
    if goal.goal == 0:
        return float(goal.ok)
    above, below = (goal.value, goal.goal) if goal.better == "higher" else (goal.goal, goal.value)
    return min(WIDEST_MARGIN, above / below) if below > 0 else WIDEST_MARGIN


def _words(goal: Goal) -> str:
    value: Any = "not measured" if goal.value is None else f"{goal.value:g}"
    return f"{value} (goal {'≥' if goal.better == 'higher' else '≤'} {goal.goal:g})"
