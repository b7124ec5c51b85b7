"""The table that `clawd bench ablate` prints."""

from __future__ import annotations

from rich.console import Console

from clawd.bench.ablate.figures import Measured, Result, base_row, goals, row
from clawd.bench.ablate.reading import Spoken
from clawd.bench.ablate.variants import GRPO, HYBRID, Variant
from clawd.bench.report import Report
from clawd.cli.ablate import _show

SPOKEN = Spoken(30.0, 0.25, 0.5)


def test_every_variant_is_a_line_and_a_refusal_says_why() -> None:
    measured = [Measured(gain, 0.02, 0.05, SPOKEN, 20.0) for gain in (0.1, 0.3, 0.2)]
    results = [Result(Variant(HYBRID, seeds=3), measured, []), Result(Variant(GRPO), [], ["[all] rewards are -1"])]
    rows = [*(row(result, SPOKEN) for result in results), base_row(SPOKEN)]
    console = Console(width=160, record=True, quiet=False)
    _show(console, Report("ablate", "x", rows, goals(results)))
    told = console.export_text()
    assert "0.2 (0.1–0.3)" in told
    assert f"{GRPO}: [all] rewards are -1" in told
    assert "hybrid_over_grpo_nats" in told
    assert "not measured" in told
