"""What the teacher says: the old policy, or the bare base, that was told a hint.

A hint stands near the end of a prompt, so what comes before it is read once: the student's own keys and values serve,
or one pass of the bare base where that teaches. Axes: M hints, T response tokens, K support.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache

from clawd.config import LossSettings
from clawd.learner.job import Sample
from clawd.learner.train.forward import TokenSequence, micro_batches, pad, read_head, response_hidden, unpack
from clawd.learner.train.overlap import choose_hints, drawn_hint, overlap_counts, shared_with, take_hint
from clawd.learner.train.policy import Policy

Prefix = list[tuple[Tensor, Tensor]]  # keys and values (1, heads, tokens, D) of each layer


@dataclass(frozen=True)
class Taught:
    """What the teacher says about one sample under each of its M hints."""

    support: Tensor  # (M, T, K) ℓ_teacher at the student's support
    ids: Tensor  # (M, T, K) S^p_{i,h}: the teacher's own top-k
    hidden: Tensor  # (M, T, H) what the head makes all of ℓ_teacher of


def shared_length(sample: Sample) -> int:
    """Tokens that the prompt and all its hint prompts begin with; their last one, which predicts, is never counted."""
    prompts = [sample.prompt_ids, *(hint.prompt_ids for hint in sample.hints)]
    most = min(len(prompt) for prompt in prompts) - 1
    differs = (place for place in range(most) if len({prompt[place] for prompt in prompts}) > 1)
    return next(differs, most)


def prefix_of(cache: DynamicCache, row: int, length: int) -> Prefix:
    """The first `length` tokens of one sequence that was read into `cache`."""
    return [
        (layer.keys[row : row + 1, :, :length].detach(), layer.values[row : row + 1, :, :length].detach())
        for layer in cache.layers
    ]


@torch.no_grad()
def read_prefix(policy: Policy, ids: Sequence[int]) -> Prefix:
    """Keys and values of `ids`, at least one, under the policy as it stands."""
    cache = DynamicCache()
    policy.hidden(torch.tensor([list(ids)], device=policy.device), cache)
    return prefix_of(cache, 0, len(ids))


@torch.no_grad()
def read_teacher(policy: Policy, sample: Sample, prefix: Prefix, support_ids: Tensor, budget: int) -> Taught:
    """What the policy as it stands says about the response with each hint. `prefix`: what was read before; or empty."""
    known = prefix[0][0].shape[2] if prefix else 0
    sequences = [TokenSequence(hint.prompt_ids[known:], sample.response_ids) for hint in sample.hints]
    count = support_ids.shape[1]
    found: dict[int, Tensor] = {}
    tops: dict[int, Tensor] = {}
    states: dict[int, Tensor] = {}
    for group in micro_batches([sequence.length for sequence in sequences], budget):
        batch = pad([sequences[hint] for hint in group], policy.device)
        cache = DynamicCache([(_repeated(k, len(group)), _repeated(v, len(group))) for k, v in prefix] or None)
        hidden = response_hidden(policy, batch, cache)
        values, ids, _ = read_head(hidden, policy.head, support_ids.repeat(len(group), 1), count)
        of_hints, ids_of_hints = unpack(values, batch.tokens), unpack(ids, batch.tokens)
        for row, (hint, state) in enumerate(zip(group, hidden.view(len(group), -1, hidden.shape[1]), strict=True)):
            found[hint], tops[hint] = of_hints[row, :, :count], ids_of_hints[row, :, count:]
            states[hint] = state
    hints = range(len(sample.hints))
    return Taught(*(torch.stack([each[hint] for hint in hints]) for each in (found, tops, states)))


def _repeated(values: Tensor, times: int) -> Tensor:
    return values.expand(times, -1, -1, -1)


@dataclass(frozen=True)
class Teaching:
    """What the chosen hint teaches."""

    support: Tensor  # (T, K) ℓ_teacher at the student's support
    members: Tensor  # (T, K) bool: v ∈ S_i
    hidden: Tensor | None  # (T, H); none: no hint


def teaching(taught: Taught | None, support_ids: Tensor, settings: LossSettings, lot: str) -> Teaching:
    """Choose a hint. None: there is none."""
    if taught is None:
        nothing = torch.zeros(support_ids.shape, device=support_ids.device)
        return Teaching(nothing, torch.ones_like(support_ids, dtype=torch.bool), None)
    count, length = taught.ids.shape[:2]
    student_ids, teacher_ids = support_ids[None], taught.ids[None]
    if settings.hint_choice == "random":
        choice = torch.full((1, length), drawn_hint(count, lot), device=support_ids.device)
    else:
        hints, tokens = (torch.ones(1, n, dtype=torch.bool, device=support_ids.device) for n in (count, length))
        choice = choose_hints(overlap_counts(student_ids, teacher_ids), hints, tokens, settings.hint_choice)
    support = torch.ones_like(support_ids, dtype=torch.bool)
    if settings.support == "overlap":
        support = take_hint(shared_with(student_ids, teacher_ids), choice)[0]
    chosen, hidden = (take_hint(values[None], choice)[0] for values in (taught.support, taught.hidden))
    return Teaching(chosen, support, hidden)
