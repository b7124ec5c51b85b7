"""The optimiser steps of an update, and what they did to the policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from clawd.config import LearnSettings
from clawd.errors import UpdateRefused
from clawd.learner.train.batch import Scored, loss_inputs, response_logprobs
from clawd.learner.train.losses import Metrics, hybrid_loss, merge
from clawd.learner.train.policy import Policy

StepReport = Callable[[int, dict[str, float]], None]


def accumulate(
    policy: Policy, scored: Sequence[Scored], groups: Sequence[list[int]], settings: LearnSettings
) -> tuple[float, Metrics]:
    """Add the gradient of the whole batch's loss, micro-batch by micro-batch; the loss and its metrics."""
    total, metrics = 0.0, Metrics()
    for group in groups:
        inputs = loss_inputs(policy, [scored[index] for index in group], settings.loss)
        loss, of_group = hybrid_loss(inputs, settings.loss, samples=len(scored))
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
        metrics = merge(metrics, of_group)
    return total, metrics


def take_steps(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    scored: Sequence[Scored],
    groups: Sequence[list[int]],
    settings: LearnSettings,
    report: StepReport,
) -> dict[str, float]:
    """Train `settings.steps` full-batch steps. Metrics: those of the last step, and the loss of the first one.

    Raises:
        UpdateRefused: a loss or a gradient norm isn't finite.
    """
    weights = list(policy.trainable().values())
    metrics: dict[str, float] = {}
    for step in range(1, settings.steps + 1):
        optimizer.zero_grad(set_to_none=True)
        loss, means = accumulate(policy, scored, groups, settings)
        norm = float(torch.nn.utils.clip_grad_norm_(weights, settings.grad_clip))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise UpdateRefused(f"Step {step} of {settings.steps}: loss {loss} and gradient norm {norm} aren't finite.")
        optimizer.step()
        of_step = {"train/loss": loss, "train/grad_norm": norm, **{name: mean.value for name, mean in means.items()}}
        report(step, of_step)
        if step == 1:
            metrics["train/first_loss"] = loss
            metrics["train/first_ratio"] = of_step["grpo/ratio"]
        metrics |= of_step
    return metrics


def mismatch(scored: Sequence[Scored], cap: float) -> dict[str, float]:
    """How far the trainer's old policy is from the engine that sampled: a health figure of every update."""
    log_ratio = torch.cat([entry.old - torch.tensor(entry.sample.rollout_logprobs) for entry in scored])
    return {
        "mismatch/abs_mean": float(log_ratio.abs().mean()),
        "mismatch/abs_p99": float(log_ratio.abs().quantile(0.99)),
        "mismatch/importance_weight": float(log_ratio.exp().clamp(max=cap).mean()),
    }


def effect(policy: Policy, scored: Sequence[Scored], groups: Sequence[list[int]]) -> dict[str, float]:
    """What the steps did: mean change per token of the responses' log-probability, by reward, and KL(old ‖ new).

    The KL is the k3 estimate at the response's tokens, which were sampled from about the old policy.
    """
    new = response_logprobs(policy, [entry.sample for entry in scored], groups)
    changes = [after - entry.old for after, entry in zip(new, scored, strict=True)]
    joined = torch.cat(changes)
    metrics = {"effect/kl_old": float((torch.expm1(joined) - joined).mean())}
    for name, reward in (("praised", 1), ("rejected", -1)):
        of_reward = [change for change, entry in zip(changes, scored, strict=True) if entry.sample.reward == reward]
        if of_reward:
            metrics[f"effect/{name}_logprob"] = _mean_of_means(of_reward)
    return metrics


def _mean_of_means(values: Sequence[Tensor]) -> float:
    return float(torch.stack([value.mean() for value in values]).mean())
