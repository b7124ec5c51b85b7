"""The phases of an update, in order: load, score, train, effect, write, validate, gate. Heavy: imports torch.

A phase is a function of the `Run` and a line in `PHASES`; one that must stop the update raises `UpdateRefused`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from pydantic import ValidationError

from clawd.errors import UpdateFailed, UpdateRefused
from clawd.learner.budget import Plan
from clawd.learner.job import ADAPTER_GGUF, MANIFEST_FILE, Job, Manifest, Sample
from clawd.learner.train import gate, guards
from clawd.learner.train.advantages import advantages_of, no_signal, running_mean
from clawd.learner.train.answers import ask_all
from clawd.learner.train.base import dense_name, load_base, matmul_precision
from clawd.learner.train.batch import Scored, score, select, sequence_of
from clawd.learner.train.course import Course, emit
from clawd.learner.train.devices import dtype_of, make_plan, peak_mb
from clawd.learner.train.forward import micro_batches
from clawd.learner.train.held_back import split
from clawd.learner.train.machine import training_threads
from clawd.learner.train.neutral import NeutralGroup, read_neutral
from clawd.learner.train.optimizer import learning_rate, load_optimizer, make_optimizer, save_optimizer
from clawd.learner.train.policy import Policy
from clawd.learner.train.steps import Batch, check_mismatch, effect, mismatch, score_and_begin, take_steps
from clawd.learner.train.validate import validate
from clawd.model.lora import LoraBase, read_lora_base, write_adapter_file

PACKAGES = ("torch", "transformers", "peft", "llama-cpp-python", "gguf")


@dataclass
class Run:
    """One update on its way. What a phase makes, the later ones find here."""

    job: Job
    samples: list[Sample]
    aside: Path  # where the result is put together
    course: Course
    plan: Plan
    base: LoraBase
    policy: Policy
    optimizer: torch.optim.AdamW
    parent: Manifest | None  # none: fresh LoRA weights
    batch: Batch  # empty until scored

    @property
    def kept(self) -> list[Sample]:
        """The samples that are trained."""
        return [entry.sample for entry in self.batch.scored]


def update(job: Job, samples: list[Sample], aside: Path, course: Course) -> None:
    """Compute the new version and write it, checked and complete, into the new folder `aside`.

    Raises:
        UpdateRefused, AdapterRejected: a guard tripped.
        UpdateFailed, ModelError, MissingExtra: it could not be computed.
        NoRoom: it doesn't fit into memory; nothing was loaded.
    """
    plan = make_plan(job, samples)
    use_machine(job.settings.threads, dtype_of(plan))
    course.metrics |= {"memory/budget_mb": plan.budget.total_mb, "memory/checkpointing": plan.budget.form.checkpointing}
    with course.phase("load"):
        parent = None if job.parent is None else read_parent(job.parent, job.base_fingerprint)
        run = Run(job, samples, aside, course, plan, *load(job, plan), parent, Batch([], []))
    for name, phase in PHASES:
        with course.phase(name):
            phase(run)
    course.metrics["memory/peak_mb"] = peak_mb(plan.place)
    (aside / MANIFEST_FILE).write_text(make_manifest(run).model_dump_json(indent=2))


def score_batch(run: Run) -> None:
    """Read everything under the old policy; see that there is something to learn, from the model that answered."""
    settings = run.job.settings
    kept, held_back = split(choose_samples(run), settings.gate.held_back, run.job.update_id)
    run.course.held_back = [sample.sample_id for sample in held_back]
    groups = make_groups(run, kept)
    scored, begun = score_and_begin(run.policy, kept, groups, settings, lot=run.job.update_id, baseline=baseline(run))
    usual = None if run.parent is None else run.parent.grad_norm_mean
    run.batch = Batch(scored, groups, neutral(run), score_held_back(run, held_back), usual, begun)
    run.course.metrics |= {"samples/trained": len(kept)}
    run.course.metrics |= mismatch(scored, settings.loss.importance_cap)
    check_mismatch(run.course.metrics, settings.max_rollout_mismatch)


def make_groups(run: Run, samples: list[Sample]) -> list[list[int]]:
    """The micro-batches in which they are read."""
    return micro_batches([sequence_of(sample).length for sample in samples], run.job.settings.micro_batch_tokens)


def score_held_back(run: Run, samples: list[Sample]) -> list[Scored]:
    """What is known before the first step of samples that aren't trained."""
    groups, settings = make_groups(run, samples), run.job.settings
    return score(run.policy, samples, groups, settings, lot=run.job.update_id, baseline=baseline(run))


def train(run: Run) -> None:
    run.course.metrics["train/learning_rate"] = learning_rate(run.job.settings, run.job.number)
    run.course.metrics |= take_steps(run.policy, run.optimizer, run.batch, run.job.settings, report=report_step)


def measure_effect(run: Run) -> None:
    run.course.metrics |= speed(run) | effect(run.policy, run.batch)
    guards.check_drift(run.course.metrics, run.job.settings, "After the update")


def write_result(run: Run) -> None:
    run.aside.mkdir()
    run.policy.save(run.aside)
    save_optimizer(run.optimizer, run.policy.trainable(), run.aside)
    pairs = dict(run.policy.pairs())
    names = run.base.tensor_names(pairs)
    tensors = {names[module]: pair for module, pair in pairs.items()}
    write_adapter_file(run.aside / ADAPTER_GGUF, run.base, tensors, run.policy.alpha)


def validate_result(run: Run) -> None:
    adapter = run.aside / ADAPTER_GGUF
    run.course.metrics |= validate(
        adapter, run.job.base, run.base, run.policy, run.kept, run.job.settings, run.course.courtesy
    )


def gate_result(run: Run) -> None:
    """Raises: UpdateRefused: the gate objects, and the settings don't leave that to a person."""
    course, held_back = run.course, run.batch.held_back
    job = gate.with_held_back(run.job, [scored.sample for scored in held_back])
    given = ask_all(job, run.aside / ADAPTER_GGUF, torch.get_num_threads(), course.courtesy)
    figures = gate.measure(run.policy, job, given, held_back)
    course.metrics |= {f"gate/{name}": value for name, value in figures.items()}
    serving = gate.objections(figures, job.settings.gate, "active")
    course.parent_fault = "; ".join(serving) or None
    against = gate.objections(figures, job.settings.gate)
    if not against:
        return
    doubt = f"The gate objects to version {job.number}: {'; '.join(against)}."
    if job.settings.gate.on_failure == "refuse":
        raise UpdateRefused(doubt)
    course.doubt, course.needs_word = doubt, job.settings.gate.on_failure == "ask"


PHASES: tuple[tuple[str, Callable[[Run], None]], ...] = (
    ("score", score_batch),
    ("train", train),
    ("effect", measure_effect),
    ("write", write_result),
    ("validate", validate_result),
    ("gate", gate_result),
)


def use_machine(threads: int | None, dtype: torch.dtype) -> None:
    """Set the process-wide switches of torch and transformers."""
    torch.set_num_threads(training_threads(threads))
    torch.set_float32_matmul_precision(matmul_precision(dtype))
    transformers.utils.logging.disable_progress_bar()


def load(job: Job, plan: Plan) -> tuple[LoraBase, Policy, torch.optim.AdamW]:
    """The base, the policy as it stood when the update began, and its optimiser."""
    base, form = read_lora_base(job.base, job.base_fingerprint), plan.budget.form
    dense = load_base(job.base, job.base_fingerprint, job.cache, dtype_of(plan), plan.place.name, form.quantise)
    policy = Policy(dense, job.settings.lora, job.settings.seed, job.base.name, checkpointing=form.checkpointing)
    optimizer = make_optimizer(policy.trainable(), job.settings, job.number)
    if job.parent is not None:
        policy.load(job.parent)
        load_optimizer(optimizer, policy.trainable(), job.parent)
    return base, policy, optimizer


def read_parent(parent: Path, fingerprint: str) -> Manifest:
    """Raises: UpdateFailed: the parent's manifest can't be read, or names another base."""
    try:
        manifest = Manifest.model_validate_json((parent / MANIFEST_FILE).read_text())
    except (OSError, ValidationError) as error:
        raise UpdateFailed(f"The parent version in {parent} can't be read: {error}") from error
    if manifest.base_fingerprint != fingerprint:
        raise UpdateFailed(f"The parent version in {parent} was made for another base model; begin a new adapter.")
    return manifest


def choose_samples(run: Run) -> list[Sample]:
    """Raises: UpdateRefused: none is left, or nothing can be told from those that are."""
    course = run.course
    kept, course.quarantined = select(run.samples, run.job.settings, run.policy.vocabulary)
    course.metrics |= {
        "samples/used": len(kept),
        "samples/quarantined": len(course.quarantined),
        "samples/hinted": sum(bool(sample.hints) for sample in kept),
        "samples/scored": sum(sample.scored for sample in kept),
        "samples/flat_groups": advantages_of(kept, 0.0)[1],
    }
    guards.check_usable(len(kept), len(run.samples), run.job.settings)
    if (reason := no_signal(kept)) is not None:
        raise UpdateRefused(f"No signal: {reason}.")
    return kept


def baseline(run: Run) -> float:
    """What is subtracted from rewards: the adapter's mean reward before this batch; 0 unless the settings ask."""
    if run.job.settings.loss.baseline_decay is None or run.parent is None:
        return 0.0
    return run.parent.reward_mean or 0.0


def reward_mean(run: Run) -> float | None:
    """The adapter's running mean with this batch; unless the settings ask for it, it is handed on as it was."""
    before = None if run.parent is None else run.parent.reward_mean
    decay = run.job.settings.loss.baseline_decay
    return before if decay is None else running_mean(before, run.kept, decay)


def neutral(run: Run) -> list[NeutralGroup]:
    job = run.job
    if job.settings.loss.neutral_weight == 0 or not job.neutral:
        return []
    key = dense_name(job.base_fingerprint, dtype_of(run.plan)) + ("" if job.settings.quantise == "none" else "-nf4")
    return read_neutral(run.policy, job.neutral, job.cache, key, job.settings.micro_batch_tokens)


def report_step(step: int, metrics: dict[str, float]) -> None:
    emit("step", step=step, **metrics)


def speed(run: Run) -> dict[str, float]:
    tokens = run.course.metrics["train/steps"] * sum(sequence_of(sample).length for sample in run.kept)
    seconds = run.course.seconds["score"] + run.course.seconds["train"]  # scoring takes the first step's gradient
    return {"train/tokens_per_s": tokens / max(seconds, 1e-9)}


def make_manifest(run: Run) -> Manifest:
    job, course = run.job, run.course
    files = sorted(run.aside.iterdir())
    return Manifest(
        update_id=job.update_id,
        adapter_id=job.adapter_id,
        number=job.number,
        parent=None if job.parent is None else job.parent.name,
        base_fingerprint=job.base_fingerprint,
        sample_ids=[sample.sample_id for sample in run.kept],
        settings=job.settings.model_dump(mode="json"),
        metrics=course.metrics,
        seconds=course.seconds,
        sha256={path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        reward_mean=reward_mean(run),
        grad_norm_mean=guards.running_norm(run.batch.usual_norm, course.metrics["train/first_grad_norm"]),
        versions={name: version(name) for name in PACKAGES},
    )
