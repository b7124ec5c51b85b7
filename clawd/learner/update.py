"""The update child: one training step of one adapter, from a job folder to a result folder.

    python -m clawd.learner.update JOB_DIR

Guarantees, whatever happens: `result/` is either absent or whole and checked; `outcome.json` comes last and says which.
The same job on the same machine gives the same bytes of adapter. SIGTERM ends it at once. Works on token ids alone: no
tokenizer is loaded.

Prints one JSON object a line: `{"event": "phase"|"step"|"outcome", ...}`. Metrics, all scalar:

    samples/used, samples/quarantined, samples/hinted, samples/scored
    mismatch/abs_mean, mismatch/abs_p99, mismatch/importance_weight    trainer (old) against engine, before training
    train/first_loss, train/first_ratio, train/loss, train/grad_norm, train/tokens_per_s
    grpo/*, opd/*, kl_base/*                                           terms of the loss at the last step, see `losses`
    effect/kl_old, effect/praised_logprob, effect/rejected_logprob     after the last step, per token
    validate/mismatch_kl, validate/base_mismatch_kl, validate/effect_kl   through llama.cpp, nats per token
    memory/peak_mb
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import psutil
import torch
import transformers
from pydantic import ValidationError

from clawd.errors import AdapterRejected, UpdateFailed, UpdateRefused
from clawd.learner.base import load_base, training_dtype
from clawd.learner.batch import Scored, score, select, sequence_of
from clawd.learner.forward import micro_batches
from clawd.learner.job import (
    ADAPTER_GGUF,
    JOB_FILE,
    MANIFEST_FILE,
    OUTCOME_FILE,
    RESULT_FOLDER,
    SAMPLES_FILE,
    Job,
    Manifest,
    Outcome,
    Sample,
)
from clawd.learner.optimizer import load_optimizer, make_optimizer, save_optimizer
from clawd.learner.policy import Policy
from clawd.learner.train import effect, mismatch, take_steps
from clawd.learner.validate import validate
from clawd.model.lora import LoraBase, read_lora_base, write_adapter_file

log = logging.getLogger(__name__)

ASIDE = ".result"
PACKAGES = ("torch", "transformers", "peft", "llama-cpp-python", "gguf")


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


@dataclass
class Course:
    """What is known so far: it goes into the outcome even if the update is refused half-way."""

    metrics: dict[str, float] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - began, 3)
        emit("phase", name=name, seconds=self.seconds[name])

    def outcome(self, state: str, reason: str | None = None) -> Outcome:
        return Outcome.model_validate(
            {"state": state, "reason": reason, "metrics": self.metrics, "quarantined": self.quarantined}
        )


def run(folder: Path) -> Outcome:
    """Do the job in `folder` and write its outcome; never raises for what a job can bring about."""
    course = Course()
    clear(folder)
    try:
        job, samples = read_job(folder)
        update(job, samples, folder, course)
        outcome = course.outcome("staged")
    except (UpdateRefused, AdapterRejected) as refusal:
        outcome = course.outcome("refused", str(refusal))
    except Exception as error:  # the outcome must say what happened, whatever it was
        log.exception("the update failed")
        outcome = course.outcome("failed", f"{type(error).__name__}: {error}")
    shutil.rmtree(folder / ASIDE, ignore_errors=True)
    write_aside(folder / OUTCOME_FILE, outcome.model_dump_json(indent=2))
    emit("outcome", state=outcome.state, reason=outcome.reason)
    return outcome


def clear(folder: Path) -> None:
    """Remove what an earlier try left, the outcome first: without it, nobody takes the rest for a result."""
    (folder / OUTCOME_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / RESULT_FOLDER, ignore_errors=True)
    shutil.rmtree(folder / ASIDE, ignore_errors=True)


def read_job(folder: Path) -> tuple[Job, list[Sample]]:
    """Raises: UpdateFailed: a file is missing or isn't what the contract says."""
    try:
        job = Job.model_validate_json((folder / JOB_FILE).read_text())
        lines = (folder / SAMPLES_FILE).read_text().splitlines()
        return job, [Sample.model_validate_json(line) for line in lines if line.strip()]
    except OSError as error:
        raise UpdateFailed(f"The job folder is incomplete: {error}") from error
    except ValidationError as error:
        raise UpdateFailed(f"The job folder holds what can't be used: {error}") from error


def update(job: Job, samples: list[Sample], folder: Path, course: Course) -> None:
    """All phases, in order; the result folder appears at the end.

    Raises:
        UpdateRefused, AdapterRejected: a guard tripped.
        UpdateFailed, ModelError: it could not be computed.
    """
    settings = job.settings
    use_machine(settings.threads, training_dtype(settings.dtype))
    with course.phase("load"):
        base, policy, optimizer = load(job)
    kept = choose_samples(samples, job, policy, course)
    groups = micro_batches([sequence_of(sample).length for sample in kept], settings.micro_batch_tokens)
    with course.phase("score"):
        scored = score(policy, kept, groups, settings)
    course.metrics |= mismatch(scored, settings.loss.importance_cap)
    with course.phase("train"):
        trained = take_steps(policy, optimizer, scored, groups, settings, report=report_step)
    course.metrics |= trained | speed(scored, settings.steps, course.seconds["train"])
    with course.phase("effect"):
        course.metrics |= effect(policy, scored, groups)
    aside = folder / ASIDE
    with course.phase("write"):
        write(aside, base, policy, optimizer)
    with course.phase("validate"):
        course.metrics |= validate(aside / ADAPTER_GGUF, job.base, base, policy, kept, settings)
    course.metrics["memory/peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    manifest = make_manifest(job, kept, aside, course)
    (aside / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2))
    aside.rename(folder / RESULT_FOLDER)


def use_machine(threads: int | None, dtype: torch.dtype) -> None:
    """Set the process-wide switches of torch and transformers."""
    torch.set_num_threads(threads or psutil.cpu_count(logical=False) or 1)
    # With a bfloat16 base the operands of the output head are bfloat16 numbers already: multiplying them as such with
    # float32 sums changes nothing but the time.
    torch.set_float32_matmul_precision("medium" if dtype == torch.bfloat16 else "highest")
    transformers.utils.logging.disable_progress_bar()


def load(job: Job) -> tuple[LoraBase, Policy, torch.optim.AdamW]:
    """The base, the policy as it stood when the update began, and its optimiser."""
    base = read_lora_base(job.base, job.base_fingerprint)
    dtype = training_dtype(job.settings.dtype)
    dense = load_base(job.base, job.base_fingerprint, job.cache, dtype)
    policy = Policy(dense, job.settings.lora, job.settings.seed, job.base.name)
    optimizer = make_optimizer(policy.trainable(), job.settings)
    if job.parent is not None:
        check_parent(job.parent, job.base_fingerprint)
        policy.load(job.parent)
        load_optimizer(optimizer, policy.trainable(), job.parent)
    return base, policy, optimizer


def check_parent(parent: Path, fingerprint: str) -> None:
    """Raises: UpdateFailed: the parent's manifest can't be read, or names another base."""
    try:
        manifest = Manifest.model_validate_json((parent / MANIFEST_FILE).read_text())
    except (OSError, ValidationError) as error:
        raise UpdateFailed(f"The parent version in {parent} can't be read: {error}") from error
    if manifest.base_fingerprint != fingerprint:
        raise UpdateFailed(f"The parent version in {parent} was made for another base model; begin a new adapter.")


def choose_samples(samples: list[Sample], job: Job, policy: Policy, course: Course) -> list[Sample]:
    """Raises: UpdateRefused: none is left."""
    kept, course.quarantined = select(samples, job.settings, policy.vocabulary)
    course.metrics |= {
        "samples/used": len(kept),
        "samples/quarantined": len(course.quarantined),
        "samples/hinted": sum(bool(sample.hints) for sample in kept),
        "samples/scored": sum(sample.reward is not None for sample in kept),
    }
    if not kept:
        raise UpdateRefused("No usable sample is left.")
    return kept


def report_step(step: int, metrics: dict[str, float]) -> None:
    emit("step", step=step, **metrics)


def speed(scored: list[Scored], steps: int, seconds: float) -> dict[str, float]:
    tokens = steps * sum(sequence_of(entry.sample).length for entry in scored)
    return {"train/tokens_per_s": tokens / max(seconds, 1e-9)}


def write(aside: Path, base: LoraBase, policy: Policy, optimizer: torch.optim.AdamW) -> None:
    aside.mkdir()
    policy.save(aside)
    save_optimizer(optimizer, policy.trainable(), aside)
    pairs = dict(policy.pairs())
    names = base.tensor_names(pairs)
    write_adapter_file(aside / ADAPTER_GGUF, base, {names[m]: pair for m, pair in pairs.items()}, policy.alpha)


def make_manifest(job: Job, kept: list[Sample], aside: Path, course: Course) -> Manifest:
    return Manifest(
        update_id=job.update_id,
        adapter_id=job.adapter_id,
        number=job.number,
        parent=None if job.parent is None else job.parent.name,
        base_fingerprint=job.base_fingerprint,
        sample_ids=[sample.sample_id for sample in kept],
        settings=job.settings.model_dump(mode="json"),
        metrics=course.metrics,
        seconds=course.seconds,
        sha256={path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(aside.iterdir())},
        versions={name: version(name) for name in PACKAGES},
    )


def write_aside(path: Path, text: str) -> None:
    """Let `path` appear whole."""
    aside = path.with_name(f".{path.name}")
    aside.write_text(text)
    aside.replace(path)


def main(arguments: list[str]) -> int:
    """Exit status 0: staged; 1: refused or failed, see the outcome; 2: no job folder."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m clawd.learner.update JOB_DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    be_nice(folder)
    return 0 if run(folder).state == "staged" else 1


def be_nice(folder: Path) -> None:
    """Take the job's niceness before anything heavy; an unreadable job is reported by `run`."""
    try:
        job, _ = read_job(folder)
    except UpdateFailed:
        return
    os.setpriority(os.PRIO_PROCESS, 0, max(job.settings.nice, os.getpriority(os.PRIO_PROCESS, 0)))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
