"""learn curve: what the updates measured, over time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clawd.cli import learn_report
from clawd.cli.opening import open_store
from clawd.errors import ClawdError, MissingExtra, UnknownName
from clawd.store.records import DEFAULT_USER
from clawd.store.story import UpdateFigures

learn = typer.Typer(help="How learning goes.", no_args_is_help=True)

REWARD = "mean reward"
CURVES = (REWARD, "train/loss", "effect/kl_old", "validate/trained_effect_kl", "validate/mismatch_kl")
"""Shown unless others are named, as far as the updates have measured them."""
BLOCKS = "▁▂▃▄▅▆▇█"
GAP = "·"
WIDEST = 60


def add_to(app: typer.Typer) -> None:
    learn_report.add_to(learn)
    app.add_typer(learn, name="learn")


@learn.callback()
def _group() -> None:
    """How learning goes."""  # with one command alone, Typer would drop its name


@learn.command()
def curve(
    name: Annotated[str | None, typer.Argument(help="An adapter; default: the user default's.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="A metric's name; may be given several times.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw into this file too (needs the extra `bench`).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of all that was measured.")] = False,
) -> None:
    """Show what each update of an adapter has measured."""
    with open_store() as store:
        adapter = store.people.adapter(name) if name else store.people.named(DEFAULT_USER).adapter
        figures = store.story.figures(adapter.id)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in figures], ensure_ascii=False))
        return
    if not figures:
        raise UnknownName(f"{adapter.name!r} has had no update yet.")
    curves = {key: series(figures, key) for key in metric or CURVES}
    curves = {key: values for key, values in curves.items() if any(value is not None for value in values)}
    if not curves:
        known = sorted({key for one in figures for key in one.metrics})
        raise UnknownName(
            f"No update of {adapter.name!r} has measured that. There is: {', '.join(known) or 'nothing'}."
        )
    _show(figures, curves)
    if png is not None:
        draw(png, adapter.name, figures, curves)
        typer.echo(str(png))


def series(figures: Sequence[UpdateFigures], key: str) -> list[float | None]:
    """One value per update; None: it did not measure that."""
    return [one.mean_reward if key == REWARD else one.metrics.get(key) for one in figures]


def sparkline(values: Sequence[float | None]) -> str:
    """The newest values as blocks, lowest to highest; equal ones all stand in the middle."""
    shown = values[-WIDEST:]
    known = [value for value in shown if value is not None]
    low, high = min(known), max(known)
    step = (high - low) / (len(BLOCKS) - 1)
    middle = BLOCKS[len(BLOCKS) // 2]
    return "".join(
        GAP if value is None else BLOCKS[round((value - low) / step)] if step > 0 else middle for value in shown
    )


def _show(figures: Sequence[UpdateFigures], curves: dict[str, list[float | None]]) -> None:
    table = Table("metric", "updates, oldest first", "lowest", "highest", "last")
    for key, values in curves.items():
        known = [value for value in values if value is not None]
        table.add_row(key, sparkline(values), *(f"{value:.4g}" for value in (min(known), max(known), known[-1])))
    console = Console()
    console.print(table)
    for one in figures:
        if one.state in ("refused", "failed"):
            console.print(f"update {one.number} {one.state}: {escape(one.reason or '')}", soft_wrap=True)


def draw(png: Path, name: str, figures: Sequence[UpdateFigures], curves: dict[str, list[float | None]]) -> None:
    """One panel per metric. Raises MissingExtra: matplotlib. ClawdError: the file can't be written."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  heavy, and an extra
    except ImportError:
        raise MissingExtra("Drawing needs matplotlib: `pip install 'clawd[bench]'`.") from None
    figure = Figure(figsize=(8, 2 * len(curves)), layout="constrained")
    panels = figure.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (key, values) in zip(panels, curves.items(), strict=True):
        points = [
            (place, value, one.state)
            for place, (one, value) in enumerate(zip(figures, values, strict=True), start=1)
            if value is not None
        ]
        panel.plot([x for x, _, _ in points], [y for _, y, _ in points], color="tab:blue")
        for x, y, state in points:
            panel.plot(x, y, "o" if state == "active" else "x", color="tab:blue" if state == "active" else "tab:red")
        panel.set_ylabel(key)
    panels[0].set_title(f"{name}: updates (× refused)")
    panels[-1].set_xlabel("update")
    try:
        figure.savefig(png, format="png", dpi=120)
    except OSError as error:
        raise ClawdError(f"{png} can't be written: {error.strerror}.") from None
