"""The comparison: the same job by the trainer and by the plain reference, each in a process of its own.

`speedup` is the ratio of the wall-clock seconds of scoring and steps; `speedup_cpu` that of the processor's seconds,
which a busy neighbour disturbs less. Both sides use the same threads. The gradients that are compared are those of the
whole batch's loss at the first step, from the same adapter: |g - g_reference| / |g_reference| over all LoRA factors at
once, g by the trainer as it trains (`error`) and by it with a float32 base (`error_float32`).
The choices of the loss (support, hint) are each side's own: near a tie rounding can turn one.
`budget` is the memory that was computed beforehand over the measured peak. The last row of a budget is computed alone:
a model of 4B parameters in nf4 on a GPU, for which there is none here.
`growth` is the processor time per token of the job over that of one whose prompts and responses are half as long.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from clawd import lifeline
from clawd.bench.report import Goal, Report
from clawd.bench.update.child import FIGURES_FILE, GRADIENT_FILE
from clawd.bench.update.job import write_job
from clawd.config import LearnSettings, LoraSettings
from clawd.errors import UpdateFailed
from clawd.learner.budget import Form, Work, compute
from clawd.model.embedded import embedded_model_path
from clawd.model.shape import ModelShape

QWEN3_4B = ModelShape(
    hidden=2560,
    layers=36,
    heads=32,
    kv_heads=8,
    head_size=128,
    inner=9728,
    vocabulary=151936,
    tied=True,
    head_norms=True,
)
BUDGET_GOAL, GPU_MB_GOAL = 0.15, 24_000
SPEEDUP_GOAL, ERROR_GOAL, MEMORY_GOAL, GROWTH_GOAL = 4.0, 0.02, 0.6, 1.25


def run(
    model: Path | None = None,
    *,
    quick: bool = False,
    settings: LearnSettings | None = None,
    command: str = "clawd bench update",
) -> Report:
    """Measure with `model`, by default the embedded one. `quick`: 4 of the 16 samples and one step."""
    chosen = (settings or LearnSettings()).model_copy(update={"max_rollout_mismatch": None})
    if quick:
        chosen = chosen.model_copy(update={"steps": 1})
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as root:
        bench = _Bench(Path(root), model or embedded_model_path(), quick)
        bench.child("prepare", chosen)
        mine = bench.child("clawd", chosen)
        plain = bench.child("reference", chosen)
        exact = bench.child("clawd", chosen.model_copy(update={"dtype": "float32", "steps": 1}))
        again = bench.child("clawd", chosen.model_copy(update={"checkpointing": "always", "steps": 1}))
        half = bench.child("clawd", chosen, length=0.5)
    error, exact_error = (_error(side["gradient"], plain["gradient"]) for side in (mine, exact))
    gradients = {"what": "gradient", "error": round(error, 5), "error_float32": round(exact_error, 6)}
    growth = _cpu_s_per_token(mine) / _cpu_s_per_token(half)
    rows = [
        _row("clawd", mine),
        _row("reference", plain),
        _row("clawd, float32 base, one step", exact),
        _row("clawd, half as long", half),
        _row("clawd, layers computed again, one step", again),
        gradients,
        {"what": "checkpointing", "error": _error(again["gradient"], mine["gradient"])},
        budget_row("budget of a 4B model: nf4, layers computed again", QWEN3_4B, chosen),
    ]
    return Report("update", command, rows, [*_goals(mine, plain, error, growth), *_budget_goals(mine, again)])


def budget_row(what: str, shape: ModelShape, settings: LearnSettings) -> dict[str, Any]:
    """The parts of an update's memory on a GPU, in 10⁶ bytes, with samples as long as the settings allow."""
    packed = settings.model_copy(update={"quantise": "nf4", "checkpointing": "always", "lora": LoraSettings()})
    form = Form("cuda", "bfloat16", "nf4", checkpointing=True)
    budget = compute(shape, Work(packed.max_sample_tokens, hints=2), packed, form)
    parts = {f"{name}, MB": round(size / 1e6) for name, size in budget.parts.items()}
    return {"what": what, "longest sample": packed.max_sample_tokens, **parts, "budget_mb": round(budget.total / 1e6)}


def _budget_goals(*sides: dict[str, Any]) -> list[Goal]:
    off = max(abs(side["budget_mb"] / side["peak_mb"] - 1) for side in sides)
    largest = budget_row("", QWEN3_4B, LearnSettings())["budget_mb"]
    return [
        Goal("budget_error", round(off, 3), BUDGET_GOAL, "lower"),
        Goal("budget_4b_mb", largest, GPU_MB_GOAL, "lower"),
    ]


class _Bench:
    """A folder for jobs, the dense base and the adapter that all start from."""

    def __init__(self, root: Path, model: Path, quick: bool) -> None:
        self._root = root
        self._model = model
        self._quick = quick
        self._jobs = 0

    def child(self, side: str, settings: LearnSettings, length: float = 1.0) -> dict[str, Any]:
        """Run one side on a job of its own; its figures, the tokens of one pass, and its gradient.

        Raises:
            UpdateFailed: it could not be run.
        """
        self._jobs += 1
        folder, shared, cache = self._root / f"job-{self._jobs}", self._root / "adapter", self._root / "cache"
        cache.mkdir(exist_ok=True)
        tokens = write_job(folder, self._model, cache, settings, quick=self._quick, length=length)
        command = [sys.executable, "-m", "clawd.bench.update.child", side, str(folder), str(shared)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=lifeline.environment())
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UpdateFailed(f"The side {side!r} of the benchmark ended with status {done.returncode}: {last}")
        figures: dict[str, Any] = json.loads((folder / FIGURES_FILE).read_text())
        if side != "prepare":
            figures |= {"tokens": tokens, "steps": settings.steps, "gradient": load_file(folder / GRADIENT_FILE)}
        return figures


def _error(gradient: dict[str, Any], expected: dict[str, Any]) -> float:
    assert gradient.keys() == expected.keys()
    off = sum(float(np.square(gradient[name] - expected[name], dtype=np.float64).sum()) for name in expected)
    size = sum(float(np.square(value, dtype=np.float64).sum()) for value in expected.values())
    return float(np.sqrt(off / size))


def _row(what: str, figures: dict[str, Any]) -> dict[str, Any]:
    train_tokens = figures["tokens"] * figures["steps"]
    row = {
        "what": what,
        "tokens": figures["tokens"],
        "load_s": round(figures["load_s"], 1),
        "score_s": round(figures["score_s"], 1),
        "train_s": round(figures["train_s"], 1),
        "score_cpu_s": round(figures["score_cpu_s"], 1),
        "train_cpu_s": round(figures["train_cpu_s"], 1),
        "tokens_per_s": round(train_tokens / (figures["score_s"] + figures["train_s"])),
        "peak_mb": round(figures["peak_mb"]),
    }
    if "budget_mb" in figures:
        row["budget_mb"] = round(figures["budget_mb"])
    if "matmul_gflops" in figures:
        row["matmul_peak_gflops"] = round(figures["matmul_gflops"])
        row["share_of_peak"] = round(figures["gflops"] / figures["matmul_gflops"], 3)
    return row


def _goals(mine: dict[str, Any], plain: dict[str, Any], error: float, growth: float) -> list[Goal]:
    def seconds(figures: dict[str, Any], unit: str) -> float:
        return float(figures[f"score_{unit}"] + figures[f"train_{unit}"])

    return [
        Goal("speedup", round(seconds(plain, "s") / seconds(mine, "s"), 2), SPEEDUP_GOAL, "higher"),
        Goal("speedup_cpu", round(seconds(plain, "cpu_s") / seconds(mine, "cpu_s"), 2), SPEEDUP_GOAL, "higher"),
        Goal("gradient_error", round(error, 5), ERROR_GOAL, "lower"),
        Goal("memory", round(mine["peak_mb"] / plain["peak_mb"], 3), MEMORY_GOAL, "lower"),
        Goal("growth", round(growth, 3), GROWTH_GOAL, "lower"),
    ]


def _cpu_s_per_token(figures: dict[str, Any]) -> float:
    return float((figures["score_cpu_s"] + figures["train_cpu_s"]) / figures["tokens"])
