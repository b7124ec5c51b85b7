"""The optimiser steps of an update, and what they did to the policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from clawd.config import LearnSettings
from clawd.errors import UpdateRefused
from clawd.learner.job import Sample
from clawd.learner.train import guards
from clawd.learner.train.batch import Scored, in_order, loss_inputs, read_groups, response_logprobs
from clawd.learner.train.drift import drift, k3_to_old
from clawd.learner.train.losses import LossInputs, Metrics, hybrid_loss, merge
from clawd.learner.train.machine import give_back_memory
from clawd.learner.train.neutral import NeutralGroup, accumulate_neutral
from clawd.learner.train.policy import Policy
from clawd.learner.train.trust import TrustRegion, kl_to_old

StepReport = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class Begun:
    """What scoring knows of the first step, whose gradient it has left in the weights; the regulariser's is missing."""

    loss: float
    metrics: Metrics


@dataclass(frozen=True)
class Batch:
    """All that the steps of one update are taken on."""

    scored: list[Scored]
    groups: list[list[int]]  # micro-batches, as indices of `scored`
    neutral: list[NeutralGroup] = field(default_factory=list)  # empty: no regulariser
    held_back: list[Scored] = field(default_factory=list)  # not trained: the gate's
    usual_norm: float | None = None  # of gradients in the adapter's earlier updates; none: there was none
    begun: Begun | None = None  # none: nothing is known of the first step


def accumulate(policy: Policy, batch: Batch, settings: LearnSettings) -> tuple[float, Metrics]:
    """Add the gradient of the whole batch's loss, micro-batch by micro-batch; the loss and its metrics."""
    total, metrics = 0.0, Metrics()
    for group in batch.groups:
        inputs = loss_inputs(policy, [batch.scored[index] for index in group], settings.loss)
        loss, of_group = _add_gradient(inputs, settings, len(batch.scored))
        total += loss
        metrics = merge(metrics, of_group)
    return _with_neutral(policy, batch, settings, total, metrics)


def _add_gradient(inputs: LossInputs, settings: LearnSettings, samples: int) -> tuple[float, Metrics]:
    """Add the gradient of one micro-batch's share in the loss of all `samples`."""
    loss, metrics = hybrid_loss(inputs, settings.loss, samples=samples)
    metrics["drift/kl_old"] = k3_to_old(inputs)
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach()), metrics


def _with_neutral(
    policy: Policy, batch: Batch, settings: LearnSettings, loss: float, metrics: Metrics
) -> tuple[float, Metrics]:
    if not batch.neutral:
        return loss, metrics
    loss_of_neutral, of_neutral = accumulate_neutral(policy, batch.neutral, settings.loss.neutral_weight)
    return loss + loss_of_neutral, merge(metrics, of_neutral)


def score_and_begin(
    policy: Policy,
    samples: Sequence[Sample],
    groups: Sequence[list[int]],
    settings: LearnSettings,
    *,
    lot: str = "",
    baseline: float = 0.0,
) -> tuple[list[Scored], Begun]:
    """As `score`, and the first step's gradient from the same forward passes: that policy is still the old one."""
    for weight in policy.trainable().values():
        weight.grad = None
    every, total, metrics = [], 0.0, Metrics()
    for scored, inputs in read_groups(policy, samples, groups, settings, lot=lot, baseline=baseline):
        loss, of_group = _add_gradient(inputs, settings, len(samples))
        every.append(scored)
        total += loss
        metrics = merge(metrics, of_group)
    return in_order(groups, every), Begun(total, metrics)


def take_steps(
    policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch, settings: LearnSettings, report: StepReport
) -> dict[str, float]:
    """Train `settings.steps` full-batch steps, fewer if one passes the KL target.

    Metrics: those of the last step, and the loss of the first one.

    Raises:
        UpdateRefused: a loss, a gradient norm or a divergence isn't finite, or over its limit.
    """
    trust = _trust_region(policy, batch, settings)
    metrics: dict[str, float] = {}
    for step in range(1, settings.steps + 1):
        of_step = take_step(policy, optimizer, batch, settings, trust, step)
        report(step, of_step)
        if step == 1:
            metrics["train/first_loss"] = of_step["train/loss"]
            metrics["train/first_ratio"] = of_step["grpo/ratio"]
            metrics["train/first_grad_norm"] = of_step["train/grad_norm"]
        metrics |= of_step | {"train/steps": float(step)}
        if trust is not None and trust.passed:
            break
    return metrics


def take_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    settings: LearnSettings,
    trust: TrustRegion | None,
    step: int,
) -> dict[str, float]:
    """One step, and its metrics."""
    weights = list(policy.trainable().values())
    if step == 1 and batch.begun is not None:
        loss, means = _with_neutral(policy, batch, settings, batch.begun.loss, batch.begun.metrics)
    else:
        optimizer.zero_grad(set_to_none=True)
        give_back_memory()
        loss, means = accumulate(policy, batch, settings)
    norm = float(torch.nn.utils.clip_grad_norm_(weights, settings.grad_clip))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise UpdateRefused(f"Step {step} of {settings.steps}: loss {loss} and gradient norm {norm} aren't finite.")
    guards.check_gradient(norm, step, batch.usual_norm, settings)
    metrics = {"train/loss": loss, "train/grad_norm": norm, **{name: mean.value for name, mean in means.items()}}
    guards.check_drift(metrics, settings, f"After step {step - 1}")  # what this step's forward pass has seen
    if trust is None:
        optimizer.step()
        return metrics
    trust.before_step()
    optimizer.step()
    return metrics | trust.after_step()


def _trust_region(policy: Policy, batch: Batch, settings: LearnSettings) -> TrustRegion | None:
    if settings.kl_target is None:
        return None
    weights = list(policy.trainable().values())
    return TrustRegion(
        weights, lambda: kl_to_old(policy, batch.scored, batch.groups), settings.kl_target, settings.kl_excess
    )


def mismatch(scored: Sequence[Scored], cap: float) -> dict[str, float]:
    """How far the trainer's old policy is from the engine that sampled: a health figure of every update."""
    log_ratio = torch.cat([entry.old - entry.old.new_tensor(entry.sample.rollout_logprobs) for entry in scored])
    return {
        "mismatch/abs_mean": float(log_ratio.abs().mean()),
        "mismatch/abs_p99": float(log_ratio.abs().quantile(0.99)),
        "mismatch/importance_weight": float(log_ratio.exp().clamp(max=cap).mean()),
    }


def check_mismatch(metrics: dict[str, float], limit: float | None) -> None:
    """Raises: UpdateRefused: the responses weren't sampled from anything like the old policy; NaN never passes."""
    mean = metrics["mismatch/abs_mean"]
    if limit is not None and not mean <= limit:
        raise UpdateRefused(
            f"The trainer and the engine that sampled disagree: {mean:.3f} nats per token in the mean, "
            f"more than learn.max_rollout_mismatch = {limit}."
        )


def effect(policy: Policy, batch: Batch) -> dict[str, float]:
    """What the steps did: mean change per token of the responses' log-probability, by reward, and KL(old ‖ new).

    The KL is the k3 estimate at the response's tokens, which were sampled from about the old policy.
    """
    scored = batch.scored
    new = response_logprobs(policy, [entry.sample for entry in scored], batch.groups)
    changes = [after - entry.old for after, entry in zip(new, scored, strict=True)]
    joined = torch.cat(changes)
    metrics = {"effect/kl_old": float((torch.expm1(joined) - joined).mean()), **drift(policy, scored, batch.groups)}
    metrics["drift/kl_old"] = metrics["effect/kl_old"]
    for name, reward in (("praised", 1), ("rejected", -1)):
        of_reward = [change for change, entry in zip(changes, scored, strict=True) if entry.sample.reward == reward]
        if of_reward:
            metrics[f"effect/{name}_logprob"] = _mean_of_means(of_reward)
    return metrics


def _mean_of_means(values: Sequence[Tensor]) -> float:
    return float(torch.stack([value.mean() for value in values]).mean())
