"""A benchmark's report on the screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from clawd.bench.report import Report

MOST_COLUMNS = 7  # of a table that reads well on 80 characters


def print_report(report: Report, json_output: bool, show: Callable[[Console, Report], None] | None = None) -> None:
    """Print the report; as tables with `show`, by default every figure of every row.

    Raises:
        typer.Exit: with status 1, if a goal is missed.
    """
    if json_output:
        typer.echo(report.to_json())
    else:
        (show or _show)(Console(), report)
    if not all(goal.ok for goal in report.goals):
        raise typer.Exit(1)


def _show(console: Console, report: Report) -> None:
    kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in report.rows:
        kinds.setdefault(tuple(row), []).append(row)
    for columns, rows in kinds.items():
        console.print(_wide(columns, rows) if len(columns) > MOST_COLUMNS else _long(columns, rows))
    console.print(goals_table(report))


def _long(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(*columns)
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    return table


def _wide(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
    """A row of many figures becomes a column."""
    table = Table()
    table.add_column(columns[0], no_wrap=True)
    for row in rows:
        table.add_column(str(row[columns[0]]), overflow="fold")
    for column in columns[1:]:
        table.add_row(column, *(str(row[column]) for row in rows))
    return table


def goals_table(report: Report) -> Table:
    """The goals of a benchmark and whether they are met."""
    table = Table(title="Goals", title_justify="left")
    for name in ("figure", "value", "goal", ""):
        table.add_column(name, justify="right" if name in ("value", "goal") else "left")
    for goal in report.goals:
        sign = "≥" if goal.better == "higher" else "≤"
        shown = "not measured" if goal.value is None else f"{goal.value:g}"
        table.add_row(
            goal.name, shown, f"{sign} {goal.goal:g}", "[green]ok[/green]" if goal.ok else "[red]missed[/red]"
        )
    return table
