"""The plots of an experiment: learning curves with their band over seeds, drift, and tokens per request."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clawd.bench.personalize.baseline import Base
from clawd.bench.personalize.driver import prompt_tokens
from clawd.bench.personalize.merit import MOST_NEUTRAL_KL, Curve, curves
from clawd.bench.personalize.record import RunRecord

SMOOTH = 5  # sessions of the running mean
WIDEST_TITLE = 150  # characters
COLOURS = ("#1a4fa3", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#16a2b8", "#7f8c8d", "#b03a78")


def draw(base: Base, records: Sequence[RunRecord], users: Sequence[str], title: str, path: Path) -> None:
    """Write `path`; its ending names the format (.png, .svg, .pdf)."""
    arms = list(dict.fromkeys(record.arm for record in records))
    figure = Figure(figsize=(15, 3.6 * len(users) + 1), layout="constrained")
    grid = figure.subplots(len(users), 3, squeeze=False, width_ratios=(3, 2, 1.6))
    for row, user in zip(grid, users, strict=True):
        found = {arm: _found(base, records, arm, user) for arm in arms}
        found = {arm: pairs for arm, pairs in found.items() if pairs}
        _learning(row[0], base, user, {arm: [curve for _, curve in pairs] for arm, pairs in found.items()}, arms)
        _drift(row[1], user, {arm: [curve for _, curve in pairs] for arm, pairs in found.items()}, arms)
        _tokens(row[2], user, {arm: [record for record, _ in pairs] for arm, pairs in found.items()}, arms)
    figure.suptitle(textwrap.fill(title, WIDEST_TITLE), fontsize=10)
    figure.savefig(path, dpi=110)


def _found(base: Base, records: Sequence[RunRecord], arm: str, user: str) -> list[tuple[RunRecord, Curve]]:
    mine = [record for record in records if record.arm == arm]
    return [(record, curve) for record in mine for curve in curves(record, base) if curve.user == user]


def _colour(arms: Sequence[str], arm: str) -> str:
    return COLOURS[arms.index(arm) % len(COLOURS)]


def running_mean(successes: Sequence[bool]) -> NDArray[np.float64]:
    """Of the last `SMOOTH` sessions, or of as many as there are."""
    values = np.asarray(successes, dtype=np.float64)
    return np.array([values[max(0, end - SMOOTH) : end].mean() for end in range(1, len(values) + 1)])


def _learning(axes: Axes, base: Base, user: str, found: dict[str, list[Curve]], arms: Sequence[str]) -> None:
    told = base.users[user]
    axes.set(title=f"{user}: first replies that succeed (mean of {SMOOTH})", xlabel="session", ylim=(-0.03, 1.03))
    axes.axhline(told.base_rate, color="black", linestyle=":", linewidth=1, label="base")
    axes.axhline(told.ceiling, color="grey", linestyle="--", linewidth=1, label="base, told the wish")
    for arm, of_seeds in found.items():
        shortest = min(len(curve.outcomes) for curve in of_seeds)
        means = np.stack([running_mean(curve.successes[:shortest]) for curve in of_seeds])
        sessions = np.arange(1, shortest + 1)
        colour = _colour(arms, arm)
        axes.plot(sessions, np.median(means, axis=0), color=colour, label=f"{arm} ({len(of_seeds)})")
        axes.fill_between(sessions, means.min(axis=0), means.max(axis=0), color=colour, alpha=0.12, linewidth=0)
        for curve in of_seeds:
            bad = [at + 1 for at, outcome in enumerate(curve.outcomes[:shortest]) if outcome == "not an answer"]
            axes.plot(bad, [0.0] * len(bad), "x", color=colour)
    axes.legend(fontsize=7, loc="best", title="× satisfied, but no answer", title_fontsize=7)


def _drift(axes: Axes, user: str, found: dict[str, list[Curve]], arms: Sequence[str]) -> None:
    axes.set(title=f"{user}: KL to base on neutral prompts", xlabel="session", ylabel="nats/token")
    axes.axhline(MOST_NEUTRAL_KL, color="black", linestyle="--", linewidth=1)
    for arm, of_seeds in found.items():
        for curve in of_seeds:
            sessions = range(1, len(curve.drift) + 1)
            values = [drift.neutral_kl for drift in curve.drift]
            axes.step(sessions, values, where="post", color=_colour(arms, arm), alpha=0.8)


def _tokens(axes: Axes, user: str, found: dict[str, list[RunRecord]], arms: Sequence[str]) -> None:
    axes.set(title=f"{user}: prompt tokens per request")
    names = list(found)
    values = [_mean_tokens(found[arm], user) for arm in names]
    bars = axes.barh(range(len(names)), values, 0.6, color=[_colour(arms, arm) for arm in names])
    axes.bar_label(bars, fmt="%.0f", fontsize=7, padding=2)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.15)


def _mean_tokens(records: Sequence[RunRecord], user: str) -> float:
    return statistics.fmean(
        prompt_tokens([record.sessions[place] for record in records for place in record.of_user(user)])
    )
