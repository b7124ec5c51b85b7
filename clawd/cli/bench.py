"""`clawd bench NAME`: measure what is promised, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from clawd.cli.report_view import print_report
from clawd.errors import MissingExtra

# The benchmarks load llama.cpp's binding, which `clawd --help` must not: they are imported where they run.
if TYPE_CHECKING:
    from clawd.bench.report import Report

BENCH = "clawd bench"

QUICK = typer.Option(False, "--quick", help="Fewer rounds.")
JSON = typer.Option(False, "--json", help="Print one JSON object.")
MODEL = typer.Option(None, "--model", help="GGUF file to measure with; by default the embedded one.")

PLOT = typer.Option("clawd-bench-serve.png", "--plot", help="File for the plot: .png, .svg or .pdf.")
SAVE = typer.Option("clawd-bench-serve.json", "--save", help="File for the JSON.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(bench)


bench = typer.Typer(name="bench", help="Measure what is promised, on this machine.", no_args_is_help=True)


@bench.command("decode")
def decode(model: Path | None = MODEL, quick: bool = QUICK, json_output: bool = JSON) -> None:
    """Decoding speed of the engine as a fraction of a bare llama.cpp loop, and what the key-value formats cost."""
    from clawd.bench import decode as benchmark  # noqa: PLC0415

    _tell(lambda command: benchmark.run(model, quick=quick, command=command), "decode", quick, json_output)


@bench.command("grammar")
def grammar(model: Path | None = MODEL, quick: bool = QUICK, json_output: bool = JSON) -> None:
    """Answers that follow a JSON schema: llguidance and llama.cpp's grammars on schemas that trouble compilers."""
    from clawd.bench import grammar as benchmark  # noqa: PLC0415

    _tell(lambda command: benchmark.run(model, quick=quick, command=command), "grammar", quick, json_output)


@bench.command("start")
def start(quick: bool = QUICK, json_output: bool = JSON) -> None:
    """Seconds from `clawd start` to ready, and the server's memory above the model file."""
    from clawd.bench import start as benchmark  # noqa: PLC0415

    _tell(lambda command: benchmark.run(quick=quick, command=command), "start", quick, json_output)


@bench.command("update")
def update(
    model: Path | None = MODEL,
    quick: bool = QUICK,
    json_output: bool = JSON,
    beside: bool = typer.Option(False, "--beside", help="What people's answers lose beside an update, instead."),
) -> None:
    """Speed and memory of an update beside a plain reference, and whether both have the same gradients."""
    if beside:
        from clawd.bench.update import beside as people  # noqa: PLC0415

        progress = Console(stderr=True)
        say = partial(progress.print, style="dim", highlight=False)
        _tell(
            lambda command: people.run(model, quick=quick, command=command, say=say),
            "update --beside",
            quick,
            json_output,
        )
        return
    from clawd.bench.update import run as benchmark  # noqa: PLC0415

    _tell(lambda command: benchmark.run(model, quick=quick, command=command), "update", quick, json_output)


@bench.command("serve")
def serve(
    model: Path | None = MODEL,
    quick: bool = QUICK,
    json_output: bool = JSON,
    plot: Path = PLOT,
    no_plot: bool = typer.Option(False, "--no-plot", help="Draw no plot."),
    save: Path = SAVE,
) -> None:
    """How fast clients are served: streams, adapters, long sessions, swaps, the judge's queue; takes five minutes.

    With --quick less than two. Starts daemons of its own and touches nothing of a running one.
    """
    from clawd.bench.serve import run as benchmark  # noqa: PLC0415

    progress = Console(stderr=True)
    draw = None if no_plot else _drawing()
    command = f"{BENCH} serve{' --quick' if quick else ''}"
    report = benchmark.run(
        model, quick=quick, command=command, say=lambda step: progress.print(f"[dim]•[/dim] {step}", highlight=False)
    )
    save.write_text(report.to_json() + "\n", encoding="utf-8")
    progress.print(f"JSON: {save}", highlight=False)
    if draw is not None:
        draw(report, plot)
        progress.print(f"Plot: {plot}", highlight=False)
    print_report(report, json_output)


def _drawing() -> Callable[[Report, Path], None]:
    """What draws the plot; asked for before anything is measured.

    Raises:
        MissingExtra: matplotlib isn't installed.
    """
    try:
        from clawd.bench.serve.plot import draw  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra(f"The plot needs {error.name}: pip install 'clawd[bench]', or --no-plot.") from None
    return draw


def _tell(measure: Callable[[str], Report], name: str, quick: bool, json_output: bool) -> None:
    print_report(measure(f"{BENCH} {name}{' --quick' if quick else ''}"), json_output)
