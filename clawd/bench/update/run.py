"""The comparison: the same job by the trainer and by the plain reference, each in a process of its own.

`speedup` is the ratio of the wall-clock seconds of scoring and steps; `speedup_cpu` that of the processor's seconds,
which a busy neighbour disturbs less. Both sides use the same threads. The gradients that are compared are those of the
whole batch's loss at the first step, from the same adapter: |g - g_reference| / |g_reference| over all LoRA factors at
once, g by the trainer as it trains (`error`) and by it with a float32 base (`error_float32`).
The choices of the loss (support, hint) are each side's own: near a tie rounding can turn one.
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
from clawd.config import LearnSettings
from clawd.errors import UpdateFailed
from clawd.model.embedded import embedded_model_path

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
        half = bench.child("clawd", chosen, length=0.5)
    error, exact_error = (_error(side["gradient"], plain["gradient"]) for side in (mine, exact))
    gradients = {"what": "gradient", "error": round(error, 5), "error_float32": round(exact_error, 6)}
    growth = _cpu_s_per_token(mine) / _cpu_s_per_token(half)
    rows = [
        _row("clawd", mine),
        _row("reference", plain),
        _row("clawd, float32 base, one step", exact),
        _row("clawd, half as long", half),
        gradients,
    ]
    return Report("update", command, rows, _goals(mine, plain, error, growth))


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
