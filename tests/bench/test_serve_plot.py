"""The plot of a recorded report."""

from __future__ import annotations

from pathlib import Path

from clawd.bench.report import Goal, Report
from clawd.bench.serve.figures import goals
from clawd.bench.serve.plot import WIDEST_MARGIN, draw, margin
from tests.bench.recorded import report


def test_it_is_drawn_in_the_form_that_its_name_asks_for(tmp_path: Path) -> None:
    draw(report(), tmp_path / "plot.png")
    draw(report(), tmp_path / "plot.svg")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_it_is_drawn_without_what_was_not_measured(tmp_path: Path) -> None:
    draw(Report("serve", "clawd bench serve", [], goals([])), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0


def test_margin_is_one_on_the_line_and_more_on_the_good_side() -> None:
    assert margin(Goal("rate", 0.97, 0.97, "higher")) == 1
    assert margin(Goal("rate", 0.485, 0.97, "higher")) == 0.5
    assert margin(Goal("wait", 2.0, 1.2, "lower")) == 0.6
    assert margin(Goal("wait", 0.001, 1.2, "lower")) == WIDEST_MARGIN
    assert margin(Goal("wait", 0, 1.2, "lower")) == WIDEST_MARGIN
    assert margin(Goal("failures", 0, 0, "lower")) == 1
    assert margin(Goal("failures", 3, 0, "lower")) == 0
    assert margin(Goal("unknown", None, 4, "lower")) == 0
