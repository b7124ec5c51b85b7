"""How far the steps of an update have moved the policy at the responses' tokens, from old and from the base."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clawd.learner.train.batch import Scored, sequence_of
from clawd.learner.train.forward import entropies, kl_to, pad, response_hidden
from clawd.learner.train.losses import LossInputs, Mean, difference, k3
from clawd.learner.train.policy import Policy


@torch.no_grad()
def k3_to_old(inputs: LossInputs) -> Mean:
    """KL(old ‖ cur) of a micro-batch by the k3 estimate: the forward pass of a step sees what the steps before did."""
    estimate = k3(difference(inputs.cur, inputs.old, inputs.tokens))
    return Mean(float(estimate[inputs.tokens].sum()), float(inputs.tokens.sum()))


@torch.no_grad()
def drift(policy: Policy, scored: Sequence[Scored], groups: Sequence[list[int]]) -> dict[str, float]:
    """KL(cur ‖ base), exact over the vocabulary, and the entropy as a multiple of what it was under old."""
    divergences: list[Tensor] = []
    after: list[Tensor] = []
    for group in groups:
        batch = pad([sequence_of(scored[index].sample) for index in group], policy.device)
        hidden = response_hidden(policy, batch)
        with policy.adapter_off():
            divergences.append(kl_to(hidden, response_hidden(policy, batch), policy.head))
        after.append(entropies(hidden, policy.head))
    before = torch.cat([entry.old_entropy for entry in scored]).mean()
    return {
        "drift/kl_base": float(torch.cat(divergences).mean()),
        "drift/entropy_ratio": float(torch.cat(after).mean() / before.clamp(min=1e-9)),
    }
