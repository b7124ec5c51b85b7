"""The plain form of an update: one sample at a time, PEFT's own layers, a log-softmax over the vocabulary, float32.

Written from the formulas of `docs/algorithm.md` without any code of the trainer, so that its gradients are a check of
those too. Only the method `hybrid` with the default options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clawd.config import LossSettings
from clawd.learner.job import Sample


@dataclass(frozen=True)
class Old:
    """What the old policy says about one sample."""

    response: Tensor  # (T,)
    ids: Tensor  # (T, K) its top-k
    support: Tensor  # (T, K)
    teacher: Tensor | None  # (T, K) under the chosen hint; none: no hint


def logprobs(model: Any, prompt: list[int], response: list[int]) -> Tensor:
    """(T, V): the distributions that predict the response."""
    logits: Tensor = model(input_ids=torch.tensor([prompt + response])).logits[0]
    return logits[len(prompt) - 1 : -1].log_softmax(dim=-1)


@torch.no_grad()
def read_old(model: Any, sample: Sample, loss: LossSettings) -> Old:
    student = logprobs(model, sample.prompt_ids, sample.response_ids)
    top = student.topk(loss.support_k, dim=-1)
    best, teacher = -1, None
    for hint in sample.hints:
        told = logprobs(model, hint.prompt_ids, sample.response_ids)
        theirs = told.topk(loss.support_k, dim=-1).indices
        overlap = int((top.indices[:, :, None] == theirs[:, None, :]).sum())
        if overlap > best:
            best, teacher = overlap, told.gather(1, top.indices)
    response = student.gather(1, torch.tensor(sample.response_ids)[:, None])[:, 0]
    return Old(response, top.indices, top.values, teacher)


def loss_of(model: Any, sample: Sample, old: Old, loss: LossSettings) -> Tensor:
    """Mean over the response of L_grpo + L_opd."""
    current = logprobs(model, sample.prompt_ids, sample.response_ids)
    total = torch.zeros(len(sample.response_ids))
    if sample.reward is not None:
        ratio = (current.gather(1, torch.tensor(sample.response_ids)[:, None])[:, 0] - old.response).exp()
        weight = (old.response - torch.tensor(sample.rollout_logprobs)).exp().clamp(max=loss.importance_cap)
        total = total + weight * surrogate(ratio, torch.tensor(float(sample.reward)), loss)
    if old.teacher is not None:
        clip = torch.inf if loss.delta_clip is None else loss.delta_clip
        advantage = old.support.softmax(dim=-1) * (old.teacher - old.support).clamp(-clip, clip)
        ratio = (current.gather(1, old.ids) - old.support).exp()
        total = total + surrogate(ratio, advantage, loss).sum(dim=-1)
    return total.mean()


def surrogate(ratio: Tensor, advantage: Tensor, loss: LossSettings) -> Tensor:
    clipped = ratio.clamp(1 - loss.clip_low, 1 + loss.clip_high)
    return torch.maximum(-advantage * ratio, -advantage * clipped)


def accumulate(model: Any, samples: list[Sample], olds: list[Old], loss: LossSettings) -> None:
    """Add the gradient of the mean over the samples."""
    for sample, old in zip(samples, olds, strict=True):
        (loss_of(model, sample, old, loss) / len(samples)).backward()  # type: ignore[no-untyped-call]
