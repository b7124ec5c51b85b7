"""`clawd demo`: see it learn, in a few minutes, on a daemon of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from clawd.cli.report_view import goals_table

if TYPE_CHECKING:
    from clawd.bench.demo.run import Outcome
    from clawd.bench.report import Report

COMMAND = "clawd demo"
MUST_HOLD = frozenset({"failed_requests", "active_version", "preference_gain_nats"})
"""Goals whose miss is a failure; the others depend on the machine's speed and are told."""


def add_to(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    json_output: bool = typer.Option(False, "--json", help="Print one JSON object on stdout, progress on stderr."),
    seed: int = typer.Option(0, help="Seed of the user's words and of the sampling."),
) -> None:
    """Play a user with a plain preference on a throw-away daemon until it has learnt, and show what changed.

    Takes a few minutes and touches nothing of a running daemon. Ends with status 1 if a request failed or nothing was
    learnt.
    """
    from clawd.bench.demo.run import run  # noqa: PLC0415  loads llama.cpp's binding, which `clawd --help` must not

    progress = Console(stderr=json_output)
    outcome = run(seed, lambda sentence: progress.print(f"[dim]•[/dim] {sentence}", highlight=False))
    report = outcome.report(f"{COMMAND} --seed {seed}")
    if json_output:
        typer.echo(report.to_json())
    else:
        _show(progress, outcome, report)
    if any(goal.name in MUST_HOLD and not goal.ok for goal in report.goals):
        raise typer.Exit(1)


def _show(console: Console, outcome: Outcome, report: Report) -> None:
    console.print(_lessons(outcome))
    console.print(
        Panel(outcome.before.strip() or "(nothing)", title=f"{outcome.question} — before", title_align="left")
    )
    console.print(
        Panel(
            outcome.after.strip() or "(nothing)",
            title=f"{outcome.question} — version {outcome.version.number}",
            title_align="left",
        )
    )
    console.print(_update(outcome))
    console.print(goals_table(report))
    for call in outcome.failures:
        console.print(f"[red]failed:[/red] {call.error}", highlight=False)


def _lessons(outcome: Outcome) -> Table:
    table = Table(title="Learnt from these turns", title_justify="left", expand=True)
    for name in ("asked", "answered", "reward", "hint", "judged by"):
        table.add_column(name, overflow="fold", ratio=1 if name in ("reward", "judged by") else 3)
    for lesson in outcome.lessons:
        reward = "–" if lesson.reward is None else f"{lesson.reward:+d}"
        table.add_row(
            lesson.said, _short(lesson.answer), reward, "; ".join(lesson.hints) or "–", lesson.because, style="dim"
        )
    return table


def _short(text: str, length: int = 90) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def _update(outcome: Outcome) -> Table:
    table = Table("figure", "value", title="The update", title_justify="left")
    for name, value in outcome.phases_s.items():
        table.add_row(f"seconds/{name}", f"{value:.4g}")
    for name, value in sorted(outcome.metrics.items()):
        table.add_row(name, f"{value:.4g}")
    return table
