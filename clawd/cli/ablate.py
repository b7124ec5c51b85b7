"""`clawd bench ablate`: what each part of the loss is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from clawd.cli.report_view import goals_table, print_report

# Loads llama.cpp's binding, which `clawd --help` must not: imported where it runs.
if TYPE_CHECKING:
    from clawd.bench.report import Report

COLUMNS = {
    "gain": "gain, nats",
    "neutral_kl": "neutral KL",
    "gain_per_kl": "gain / KL",
    "gain_per_root_kl": "gain / √KL",
    "kl_old": "KL to old",
    "length_change": "length",
    "cut": "cut",
    "seconds": "s",
}
"""Keys of a row, and what heads their column."""


def add_to(bench: typer.Typer) -> None:
    bench.command("ablate")(ablate)


def ablate(
    model: Annotated[Path | None, typer.Option(help="GGUF file; by default the embedded one.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Hybrid, GRPO, OPD, and no clip alone.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for what is finished; by default nothing is kept.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """What each part of the loss does on one preference: gain on held-out replies, and what it costs elsewhere.

    Updates of one batch, variant by variant; takes half an hour, with --quick a few minutes. With --out, the same
    command goes on after a stop where it was. Touches nothing of a running daemon.
    """
    from clawd.bench.ablate.run import run  # noqa: PLC0415

    progress = Console(stderr=True)
    command = "clawd bench ablate" + (f" --model {model.name}" if model else "") + (" --quick" if quick else "")
    report = run(
        model,
        quick=quick,
        command=command,
        out=out,
        say=lambda step: progress.print(f"[dim]•[/dim] {step}", highlight=False),
    )
    print_report(report, json_output, _show)


def _show(console: Console, report: Report) -> None:
    table = Table("variant", *COLUMNS.values())
    refused = []
    for row in report.rows:
        if "variant" not in row:
            continue
        table.add_row(row["variant"], *(_cell(row, key) for key in COLUMNS))
        if row["refused"]:
            refused.append(f"{row['variant']}: {row['refused']}")
    console.print(table)
    for reason in refused:
        console.print(reason, highlight=False, markup=False)
    console.print(goals_table(report))


def _cell(row: dict[str, Any], key: str) -> str:
    """The median, and the range where there are several seeds."""
    if row[key] is None:
        return "–"
    value = f"{row[key]:.3g}"
    if key not in row["range"] or key in ("cut", "seconds"):
        return value
    low, high = row["range"][key]
    return f"{value} ({low:.3g}–{high:.3g})"
