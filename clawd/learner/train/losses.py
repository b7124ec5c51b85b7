"""The loss of an update: pure functions from named tensors to (loss, metrics), no model in sight.

Source: *OpenClaw-RL* (arXiv 2603.10165) in the notation of `docs/algorithm.md`. Axes: B samples, T response tokens, K
support. All log-probabilities are full-vocabulary, temperature 1, natural log. A gradient flows into those of `cur`
alone: whatever else is passed in is detached here, so no caller can get it wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from clawd.config import LossSettings


class Mean(NamedTuple):
    """A mean that can be merged with that of another micro-batch."""

    total: float
    weight: float

    def merged(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.weight + other.weight)

    @property
    def value(self) -> float:
        return self.total / self.weight if self.weight else 0.0


Metrics = dict[str, Mean]


def merge(left: Metrics, right: Metrics) -> Metrics:
    """The metrics of two disjoint micro-batches as those of one."""
    empty = Mean(0.0, 0.0)
    return {name: left.get(name, empty).merged(right.get(name, empty)) for name in {**left, **right}}


@dataclass(frozen=True)
class LossInputs:
    """What the loss of B samples is made of. Padded places may hold any number; the masks say what counts."""

    tokens: Tensor  # (B, T) bool: the response, padding excluded
    cur: Tensor  # (B, T) ℓ_cur(y_i)
    old: Tensor  # (B, T) ℓ_old(y_i)
    rollout: Tensor  # (B, T) ℓ_rollout(y_i), by the engine that sampled
    advantages: Tensor  # (B, T) A_i
    scored: Tensor  # (B,) bool: the turn has a score; 0 is one
    cur_support: Tensor  # (B, T, K) ℓ_cur(v)
    old_support: Tensor  # (B, T, K) ℓ_old(v)
    teacher_support: Tensor  # (B, T, K) ℓ_teacher(v) under the chosen hint
    support: Tensor  # (B, T, K) bool: v ∈ S_i
    hinted: Tensor  # (B,) bool: the turn has a hint
    divergence: Tensor | None = None  # (B, T) KL between teacher and cur; none: the clipped surrogate is asked for
    base: Tensor | None = None  # (B, T) ℓ_base(y_i); none: no KL term


def hybrid_loss(inputs: LossInputs, settings: LossSettings, samples: int | None = None) -> tuple[Tensor, Metrics]:
    """L = mean over samples of mean over the response of w_rl L_grpo_i + w_opd L_opd_i + β L_kl_i.

    The methods `grpo` and `opd` are the same with the other weight 0.

    `samples` is the size of the whole batch of which `inputs` is one micro-batch (none: B): the losses of the
    micro-batches then sum up to that of the batch, and so do their gradients.
    """
    count = inputs.tokens.shape[0] if samples is None else samples
    if inputs.tokens.shape[0] == 0:
        return inputs.cur.sum() + inputs.cur_support.sum(), {}
    grpo, metrics = grpo_term(inputs, settings)
    opd, opd_metrics = opd_term(inputs, settings) if inputs.divergence is None else divergence_term(inputs)
    rl_weight, opd_weight = term_weights(settings)
    loss = rl_weight * grpo + opd_weight * opd
    metrics = merge(metrics, opd_metrics)
    if inputs.base is not None:
        kl, kl_metrics = kl_base_term(inputs.cur, inputs.base, inputs.tokens)
        loss = loss + settings.kl_base_weight * kl
        metrics = merge(metrics, kl_metrics)
    return response_mean(loss, inputs.tokens).sum() / count, metrics


def term_weights(settings: LossSettings) -> tuple[float, float]:
    """(w_rl, w_opd) of the method."""
    rl_weight = 0.0 if settings.method == "opd" else settings.rl_weight
    opd_weight = 0.0 if settings.method == "grpo" else settings.opd_weight
    return rl_weight, opd_weight


def response_mean(values: Tensor, tokens: Tensor) -> Tensor:
    """(B,): the mean over the response's own tokens; 0 for a response without any."""
    kept = torch.where(tokens, values, torch.zeros_like(values))
    return kept.sum(dim=1) / tokens.sum(dim=1).clamp(min=1)


def grpo_term(inputs: LossInputs, settings: LossSettings) -> tuple[Tensor, Metrics]:
    """(B, T): c_i max(-A_i ρ_i, -A_i clip(ρ_i, 1-ε_lo, 1+ε_hi)), with ρ_i = exp(ℓ_cur - ℓ_old); 0 without a score.

    c_i = min(exp(ℓ_old - ℓ_rollout), cap) is the truncated importance weight between the trainer and the engine.
    Negative advantages are multiplied by `settings.negative_weight` first.
    """
    active = inputs.tokens & inputs.scored[:, None]
    log_ratio = difference(inputs.cur, inputs.old.detach(), active)
    importance = importance_weight(inputs.old, inputs.rollout, active, settings.importance_cap)
    advantages = weighted_negatives(inputs.advantages.detach(), settings.negative_weight)
    loss, clipped = clipped_surrogate(log_ratio, advantages, settings)
    metrics = {
        "grpo/ratio": _mean(log_ratio.exp(), active),
        "grpo/clipped": _mean(clipped, active),
        "grpo/importance_weight": _mean(importance, active),
        "grpo/kl_old": _mean(k3(log_ratio), active),
    }
    return torch.where(active, importance * loss, torch.zeros_like(loss)), metrics


def opd_term(inputs: LossInputs, settings: LossSettings) -> tuple[Tensor, Metrics]:
    """(B, T): Σ_{v ∈ S_i} max(-A_v ρ_v, -A_v clip(ρ_v, 1-ε_lo, 1+ε_hi)); 0 without a hint or with an empty support.

    A_v = w_v Δ_v, w_v = softmax over S_i of ℓ_old(v), Δ_v = clip(ℓ_teacher(v) - ℓ_old(v), -C, +C).
    """
    active = inputs.support & (inputs.tokens & inputs.hinted[:, None])[..., None]
    weight = support_weights(inputs.old_support, active)
    delta = difference(inputs.teacher_support, inputs.old_support, active).detach()
    kept = delta if settings.delta_clip is None else delta.clamp(-settings.delta_clip, settings.delta_clip)
    log_ratio = difference(inputs.cur_support, inputs.old_support.detach(), active)
    loss, clipped = clipped_surrogate(log_ratio, weight * kept, settings)
    metrics = {
        "opd/delta_abs": _mean(delta.abs(), active),
        "opd/delta_clipped": _mean((kept != delta).to(delta.dtype), active),
        "opd/clipped": _mean(clipped, active),
        "opd/support_size": Mean(float(active.sum()), float(active.any(dim=-1).sum())),
    }
    return torch.where(active, loss, torch.zeros_like(loss)).sum(dim=-1), metrics


def divergence_term(inputs: LossInputs) -> tuple[Tensor, Metrics]:
    """(B, T): the whole divergence between teacher and cur; 0 without a hint."""
    assert inputs.divergence is not None
    active = inputs.tokens & inputs.hinted[:, None]
    kept = torch.where(active, inputs.divergence, torch.zeros_like(inputs.divergence))
    return kept, {"opd/kl": _mean(kept, active)}


def kl_base_term(cur: Tensor, base: Tensor, tokens: Tensor) -> tuple[Tensor, Metrics]:
    """(B, T): KL(cur ‖ base) by the k3 estimator, never negative; the gradient passes through ℓ_cur."""
    estimate = k3(difference(base.detach(), cur, tokens))
    return estimate, {"kl_base/k3": _mean(estimate, tokens)}


def k3(log_ratio: Tensor) -> Tensor:
    """exp(d) - d - 1 with d = ℓ_q - ℓ_p at samples of p: an unbiased estimate of KL(p ‖ q) (Schulman, 2020)."""
    return torch.expm1(log_ratio) - log_ratio


def weighted_negatives(advantages: Tensor, weight: float) -> Tensor:
    return torch.where(advantages < 0, weight * advantages, advantages)


def clipped_surrogate(log_ratio: Tensor, advantage: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate as a loss, and 1.0 where a clip holds the gradient back (same shape as the ratio).

    With a dual clip c (Ye et al., arXiv 1912.09729) the loss of a negative advantage ends at -A c: a token that the
    policy has made much likelier against all advice doesn't outweigh the rest of the batch.
    """
    ratio = log_ratio.exp()
    free = -advantage * ratio
    bound = -advantage * ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    loss, clipped = torch.maximum(free, bound), bound > free
    if settings.dual_clip is not None:
        ceiling = -advantage * settings.dual_clip
        over = (advantage < 0) & (loss > ceiling)
        loss, clipped = torch.where(over, ceiling, loss), clipped | over
    return loss, clipped.to(ratio.dtype)


def importance_weight(old: Tensor, rollout: Tensor, active: Tensor, cap: float) -> Tensor:
    """min(exp(ℓ_old - ℓ_rollout), cap), without gradient; 1 where nothing counts."""
    return difference(old, rollout, active).detach().exp().clamp(max=cap)


def support_weights(old: Tensor, active: Tensor) -> Tensor:
    """(B, T, K): softmax of ℓ_old over the active entries, without gradient; all 0 for an empty set."""
    masked = old.detach().masked_fill(~active, -torch.inf)
    empty = ~active.any(dim=-1, keepdim=True)
    return torch.softmax(masked.masked_fill(empty, 0.0), dim=-1) * active


def difference(left: Tensor, right: Tensor, active: Tensor) -> Tensor:
    """left - right, 0 where not active: padding in an exponential could be inf, and inf times 0 is NaN."""
    zero = torch.zeros((), dtype=left.dtype, device=left.device)
    return torch.where(active, left, zero) - torch.where(active, right, zero)


def _mean(values: Tensor, active: Tensor) -> Mean:
    return Mean(float(values.detach()[active].sum()), float(active.sum()))
