"""One side of the comparison, in a process of its own, whose memory nothing else has touched.

    python -m clawd.bench.update.child prepare|clawd|reference JOB_DIR SHARED_DIR

`prepare` makes the dense base and an adapter whose B isn't zero, so that every factor has a gradient. The other two
start from it, write the gradient of the first step and their figures into the job folder. What is timed is scoring and
the steps; the trainer's scoring takes the first step's gradient with it. The reference's, which is compared with that,
is computed once more, outside of the clock.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawd.learner.budget import MIB, Place
from clawd.learner.job import Job, Sample
from clawd.learner.train.machine import be_nice, set_environment
from clawd.learner.train.update import read_job
from clawd.lifeline import die_with_parent

GRADIENT_FILE = "gradient.safetensors"
FIGURES_FILE = "figures.json"
B_SCALE = 0.01
PEAK_SIZE, PEAK_TRIES = 2048, 8


class Clock:
    """Seconds by phase, of the wall and of the processor: the latter is what remains beside a busy neighbour."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        made = work()
        self.seconds[f"{name}_s"] = time.perf_counter() - wall
        self.seconds[f"{name}_cpu_s"] = time.process_time() - cpu
        return made


def make_adapter(job: Job, samples: list[Sample], shared: Path) -> dict[str, float]:
    import torch  # noqa: PLC0415  after the environment is set, here and below

    from clawd.learner.train.base import load_base  # noqa: PLC0415
    from clawd.learner.train.devices import make_plan  # noqa: PLC0415
    from clawd.learner.train.trainer import load  # noqa: PLC0415

    _, policy, _ = load(job, make_plan(job, samples))
    load_base(job.base, job.base_fingerprint, job.cache, torch.float32)  # the other sides only read it
    generator = torch.Generator().manual_seed(1)
    for name, weight in policy.trainable().items():
        if "lora_B" in name:
            weight.data = torch.randn(weight.shape, generator=generator) * B_SCALE
    shared.mkdir(exist_ok=True)
    policy.save(shared)
    return {}


def clawd(job: Job, samples: list[Sample], folder: Path, shared: Path) -> dict[str, float]:
    from clawd.learner.train.batch import sequence_of  # noqa: PLC0415
    from clawd.learner.train.devices import dtype_of, make_plan, peak_mb  # noqa: PLC0415
    from clawd.learner.train.forward import micro_batches  # noqa: PLC0415
    from clawd.learner.train.steps import Batch, accumulate, score_and_begin, take_steps  # noqa: PLC0415
    from clawd.learner.train.trainer import load, use_machine  # noqa: PLC0415

    settings, clock = job.settings, Clock()
    plan = make_plan(job, samples)
    dtype = dtype_of(plan)
    use_machine(settings.threads, dtype)
    _, policy, optimizer = clock.time("load", lambda: load(job, plan))
    policy.load(shared)
    groups = micro_batches([sequence_of(sample).length for sample in samples], settings.micro_batch_tokens)
    scored, begun = clock.time("score", lambda: score_and_begin(policy, samples, groups, settings))
    keep_gradient(policy.trainable(), folder)
    batch = Batch(scored, groups, begun=begun)
    clock.time("train", lambda: take_steps(policy, optimizer, batch, settings, lambda *_: None))
    figures = {**clock.seconds, "peak_mb": peak_mb(plan.place) * MIB / 1e6, "budget_mb": plan.budget.total / 1e6}
    first = operations(lambda: score_and_begin(policy, samples, groups, settings))
    later = operations(lambda: accumulate(policy, batch, settings)) if settings.steps > 1 else 0
    used = (first + (settings.steps - 1) * later) / (clock.seconds["score_cpu_s"] + clock.seconds["train_cpu_s"])
    return {**figures, "gflops": used / 1e9, "matmul_gflops": matmul_peak(dtype) / 1e9}


def operations(work: Callable[[], Any]) -> int:
    """Floating-point operations of the matrix products in `work`."""
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def reference(job: Job, samples: list[Sample], folder: Path, shared: Path) -> dict[str, float]:
    import torch  # noqa: PLC0415
    from peft import PeftModel  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    from clawd.bench.update.reference import accumulate, read_old  # noqa: PLC0415
    from clawd.learner.train.base import prepare  # noqa: PLC0415
    from clawd.learner.train.devices import peak_mb  # noqa: PLC0415
    from clawd.learner.train.machine import training_threads  # noqa: PLC0415

    settings, clock = job.settings, Clock()
    torch.set_num_threads(training_threads(settings.threads))  # and nothing else: torch as it comes
    dense = prepare(job.base, job.base_fingerprint, job.cache, torch.float32)
    base = clock.time("load", lambda: AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = PeftModel.from_pretrained(base, shared, is_trainable=True)
    trainable = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    optimizer = torch.optim.AdamW(trainable.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    olds = clock.time("score", lambda: [read_old(model, sample, settings.loss) for sample in samples])
    accumulate(model, samples, olds, settings.loss)
    keep_gradient(trainable, folder)

    def train() -> None:
        for _ in range(settings.steps):
            optimizer.zero_grad(set_to_none=True)
            accumulate(model, samples, olds, settings.loss)
            torch.nn.utils.clip_grad_norm_(trainable.values(), settings.grad_clip)
            optimizer.step()

    clock.time("train", train)
    return {**clock.seconds, "peak_mb": peak_mb(Place("cpu", 0)) * MIB / 1e6}


def keep_gradient(parameters: dict[str, Any], folder: Path) -> None:
    from safetensors.torch import save_file  # noqa: PLC0415

    save_file({name: weight.grad.contiguous() for name, weight in parameters.items()}, folder / GRADIENT_FILE)


def matmul_peak(dtype: Any) -> float:
    """Operations per second of the best of a few large multiplications, on as many threads as the update has."""
    import torch  # noqa: PLC0415

    left, right = (torch.randn(PEAK_SIZE, PEAK_SIZE).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(PEAK_TRIES):
        began = time.process_time()
        left @ right
        best = min(best, time.process_time() - began)
    return 2.0 * PEAK_SIZE**3 / best


def main(arguments: list[str]) -> int:
    side, folder, shared = arguments[0], Path(arguments[1]), Path(arguments[2])
    set_environment()
    job, samples = read_job(folder)
    be_nice(job.settings.nice)
    if side == "prepare":
        figures = make_adapter(job, samples, shared)
    else:
        figures = {"clawd": clawd, "reference": reference}[side](job, samples, folder, shared)
    (folder / FIGURES_FILE).write_text(json.dumps(figures))
    return 0


if __name__ == "__main__":
    die_with_parent()
    raise SystemExit(main(sys.argv[1:]))
