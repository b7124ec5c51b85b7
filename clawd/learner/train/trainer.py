"""The phases of an update, in order: load, score, train, effect, write, validate. Heavy: imports torch."""

from __future__ import annotations

import hashlib
import resource
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from pydantic import ValidationError

from clawd.errors import UpdateFailed, UpdateRefused
from clawd.learner.job import ADAPTER_GGUF, MANIFEST_FILE, Job, Manifest, Sample
from clawd.learner.train.base import load_base, training_dtype
from clawd.learner.train.batch import Scored, score, select, sequence_of
from clawd.learner.train.course import Course, emit
from clawd.learner.train.forward import micro_batches
from clawd.learner.train.machine import training_threads
from clawd.learner.train.optimizer import load_optimizer, make_optimizer, save_optimizer
from clawd.learner.train.policy import Policy
from clawd.learner.train.steps import effect, mismatch, take_steps
from clawd.learner.train.validate import validate
from clawd.model.lora import LoraBase, read_lora_base, write_adapter_file

PACKAGES = ("torch", "transformers", "peft", "llama-cpp-python", "gguf")


def update(job: Job, samples: list[Sample], aside: Path, course: Course) -> None:
    """Compute the new version and write it, checked and complete, into the new folder `aside`.

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
    with course.phase("write"):
        write(aside, base, policy, optimizer)
    with course.phase("validate"):
        course.metrics |= validate(aside / ADAPTER_GGUF, job.base, base, policy, kept, settings)
    course.metrics["memory/peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    manifest = make_manifest(job, kept, aside, course)
    (aside / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2))


def use_machine(threads: int | None, dtype: torch.dtype) -> None:
    """Set the process-wide switches of torch and transformers."""
    torch.set_num_threads(training_threads(threads))
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
