"""`clawd bench ablate` on a tiny model: a real daemon, real updates, real measures; what is refused is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawd.bench.ablate.run import run
from clawd.bench.ablate.variants import GRPO, HYBRID, OPD, Variant
from tests.tiny_gguf import write_tiny_model


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1200)
def test_each_variant_is_trained_and_measured_or_says_why_not(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf", context=2048)
    variants = [
        Variant(HYBRID, {"learning_rate": 1e-3}, seeds=2),
        Variant(OPD, {"loss.method": "opd", "learning_rate": 1e-3}, updates=2),
        Variant(GRPO, {"loss.method": "grpo"}),
    ]
    steps: list[str] = []
    report = run(model, command="x", say=steps.append, variants=variants, out=tmp_path / "out")
    told = json.loads(report.to_json())
    assert told.keys() == {"bench", "command", "machine", "rows", "goals"}
    hybrid, opd, grpo, base = told["rows"]
    for measured in (hybrid, opd):
        assert measured["refused"] is None
        assert measured["neutral_kl"] > 0
        assert measured["kl_old"] > 0
        assert measured["gain"] != 0
        assert measured["seconds"] > 0
    low, high = hybrid["range"]["gain"]
    assert low < high  # other first weights
    assert grpo["refused"].startswith("No signal: all 16 responses were cut")
    assert grpo["gain"] is None
    assert base["cut"] == 1.0  # it answers without an end
    assert [goal["name"] for goal in told["goals"]] == [
        "hybrid_gain_nats",
        "hybrid_over_grpo_nats",
        "hybrid_over_opd_nats",
    ]
    assert [goal["value"] is None for goal in told["goals"]] == [False, True, False]
    assert len(steps) == 2 + 2 + 1 + 1

    said: list[str] = []
    again = run(model, command="x", say=said.append, variants=variants, out=tmp_path / "out")
    assert again.rows == report.rows
    assert len(said) == len(steps)
