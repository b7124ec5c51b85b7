"""`clawd bench NAME`: measure what is promised, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

# The benchmarks load llama.cpp's binding, which `clawd --help` must not: they are imported where they run.
if TYPE_CHECKING:
    from clawd.bench.report import Report

QUICK = typer.Option(False, "--quick", help="Fewer rounds.")
JSON = typer.Option(False, "--json", help="Print one JSON object.")
MODEL = typer.Option(None, "--model", help="GGUF file to measure with; by default the embedded one.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(bench)


bench = typer.Typer(name="bench", help="Measure what is promised, on this machine.", no_args_is_help=True)


@bench.command("decode")
def decode(model: Path | None = MODEL, quick: bool = QUICK, json_output: bool = JSON) -> None:
    """Decoding speed of the engine as a fraction of a bare llama.cpp loop, and what the key-value formats cost."""
    from clawd.bench import decode as benchmark  # noqa: PLC0415

    _tell(lambda command: benchmark.run(model, quick=quick, command=command), "decode", quick, json_output)


@bench.command("start")
def start(quick: bool = QUICK, json_output: bool = JSON) -> None:
    """Seconds from `clawd start` to ready, and the server's memory above the model file."""
    from clawd.bench import start as benchmark  # noqa: PLC0415

    _tell(lambda command: benchmark.run(quick=quick, command=command), "start", quick, json_output)


@bench.command("update")
def update(model: Path | None = MODEL, quick: bool = QUICK, json_output: bool = JSON) -> None:
    """Speed and memory of an update beside a plain reference, and whether both have the same gradients."""
    from clawd.bench.update import run as benchmark  # noqa: PLC0415

    _tell(lambda command: benchmark.run(model, quick=quick, command=command), "update", quick, json_output)


def _tell(measure: Callable[[str], Report], name: str, quick: bool, json_output: bool) -> None:
    """Print the report; status 1 if a goal is missed."""
    report = measure(f"clawd bench {name}{' --quick' if quick else ''}")
    if json_output:
        typer.echo(report.to_json())
    else:
        _show(Console(), report)
    if not all(goal.ok for goal in report.goals):
        raise typer.Exit(1)


def _show(console: Console, report: Report) -> None:
    kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in report.rows:
        kinds.setdefault(tuple(row), []).append(row)
    for columns, rows in kinds.items():
        table = Table(*columns)
        for row in rows:
            table.add_row(*(str(row[column]) for column in columns))
        console.print(table)
    console.print(goals_table(report))


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
