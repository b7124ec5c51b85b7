"""From samples to tensors: which are trained, what is known of them before the first step, the inputs of the loss.

Guarantees that no sample is padded or cut to make it fit: it is trained as it was sampled, or left out with a reason.
Axes: B samples, M hints, T response tokens, K support; a leading B is a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clawd.config import LearnSettings, LossSettings
from clawd.learner.job import Sample
from clawd.learner.train.forward import (
    Padded,
    TokenSequence,
    micro_batches,
    pad,
    picked_logprobs,
    response_hidden,
    top_logprobs,
    unpack,
)
from clawd.learner.train.losses import LossInputs
from clawd.learner.train.overlap import choose_hints, overlap_counts, shared_with, take_hint
from clawd.learner.train.policy import Policy


@dataclass(frozen=True)
class Scored:
    """What the old policy says about one sample, without gradient. M may be 0."""

    sample: Sample
    old: Tensor  # (T,) ℓ_old(y_i)
    support_ids: Tensor  # (T, K) S^q_i: the student's top-k under old
    old_support: Tensor  # (T, K)
    teacher_support: Tensor  # (M, T, K) ℓ_teacher at the student's support
    teacher_ids: Tensor  # (M, T, K) S^p_{i,h}: the teacher's own top-k
    base: Tensor | None  # (T,) ℓ_base(y_i); none: not asked for


def sequence_of(sample: Sample) -> TokenSequence:
    return TokenSequence(sample.prompt_ids, sample.response_ids)


def select(samples: Sequence[Sample], settings: LearnSettings, vocabulary: int) -> tuple[list[Sample], dict[str, str]]:
    """The samples to train, and the reason for each one that is left out."""
    reasons = {sample.sample_id: _objection(sample, settings, vocabulary) for sample in samples}
    kept = [sample for sample in samples if reasons[sample.sample_id] is None]
    return kept, {name: reason for name, reason in reasons.items() if reason is not None}


def _objection(sample: Sample, settings: LearnSettings, vocabulary: int) -> str | None:
    prompts = [sample.prompt_ids, *(hint.prompt_ids for hint in sample.hints)]
    length = len(sample.prompt_ids) + len(sample.response_ids)
    ids = [*sample.response_ids, *(token for prompt in prompts for token in prompt)]
    if not all(prompts):
        return "a prompt without tokens"
    if length > settings.max_sample_tokens:
        return f"{length} tokens, more than learn.max_sample_tokens = {settings.max_sample_tokens}"
    if min(ids) < 0 or max(ids) >= vocabulary:
        return f"token ids outside the vocabulary of {vocabulary}"
    if not all(math.isfinite(value) for value in sample.rollout_logprobs):
        return "log-probabilities that aren't finite"
    if not sample.reward and not sample.hints:
        return "neither a reward nor a hint: nothing to learn from"
    return None


@torch.no_grad()
def score(
    policy: Policy, samples: Sequence[Sample], groups: Sequence[list[int]], settings: LearnSettings
) -> list[Scored]:
    """Read all samples under the old policy, bare and with each hint. `groups` are the micro-batches of training."""
    k = settings.loss.support_k
    student = _student(policy, samples, groups, k)
    teacher = _teachers(policy, samples, [entry[1] for entry in student], settings.micro_batch_tokens, k)
    base: list[Tensor | None] = [None] * len(samples)
    if settings.loss.kl_base_weight > 0:
        with policy.adapter_off():
            base = list(response_logprobs(policy, samples, groups))
    return [
        Scored(sample, *of_student, *of_teacher, of_base)
        for sample, of_student, of_teacher, of_base in zip(samples, student, teacher, base, strict=True)
    ]


@torch.no_grad()
def response_logprobs(policy: Policy, samples: Sequence[Sample], groups: Sequence[list[int]]) -> list[Tensor]:
    """(T,) for every sample: log-probabilities of its response under the policy as it stands."""
    found: dict[int, Tensor] = {}
    for group in groups:
        batch = pad([sequence_of(samples[index]) for index in group])
        asked = batch.response_ids[batch.tokens][:, None]
        values = unpack(picked_logprobs(response_hidden(policy, batch), policy.head, asked), batch.tokens)
        found |= {index: values[row, batch.tokens[row], 0] for row, index in enumerate(group)}
    return [found[index] for index in range(len(samples))]


def _student(
    policy: Policy, samples: Sequence[Sample], groups: Sequence[list[int]], k: int
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(old, support_ids, old_support) of every sample."""
    found: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
    for group in groups:
        batch = pad([sequence_of(samples[index]) for index in group])
        asked = batch.response_ids[batch.tokens][:, None]
        columns = top_logprobs(response_hidden(policy, batch), policy.head, asked, k)
        picked, ids, values = (unpack(column, batch.tokens) for column in columns)
        for row, index in enumerate(group):
            real = batch.tokens[row]
            found[index] = picked[row, real, 0], ids[row, real], values[row, real]
    return [found[index] for index in range(len(samples))]


def _teachers(
    policy: Policy, samples: Sequence[Sample], support_ids: Sequence[Tensor], budget: int, k: int
) -> list[tuple[Tensor, Tensor]]:
    """(teacher_support, teacher_ids) of every sample, each (M, T, K)."""
    jobs = [(index, hint) for index, sample in enumerate(samples) for hint in range(len(sample.hints))]
    sequences = [TokenSequence(samples[i].hints[h].prompt_ids, samples[i].response_ids) for i, h in jobs]
    empty = [(ids.new_zeros(0, *ids.shape, dtype=torch.float32), ids.new_zeros(0, *ids.shape)) for ids in support_ids]
    found: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    for group in micro_batches([sequence.length for sequence in sequences], budget):
        batch = pad([sequences[number] for number in group])
        asked = torch.cat([support_ids[jobs[number][0]] for number in group])
        picked, ids, _ = top_logprobs(response_hidden(policy, batch), policy.head, asked, k)
        values, tops = unpack(picked, batch.tokens), unpack(ids, batch.tokens)
        found |= {
            jobs[n]: (values[row, batch.tokens[row]], tops[row, batch.tokens[row]]) for row, n in enumerate(group)
        }
    return [
        tuple(torch.stack([found[index, hint][part] for hint in range(len(sample.hints))]) for part in (0, 1))  # type: ignore[misc]
        if sample.hints
        else empty[index]
        for index, sample in enumerate(samples)
    ]


def loss_inputs(policy: Policy, scored: Sequence[Scored], settings: LossSettings) -> LossInputs:
    """One forward pass with gradient over a micro-batch, put beside what was known before."""
    batch = pad([sequence_of(entry.sample) for entry in scored])
    support_ids = _stack([entry.support_ids for entry in scored], batch)
    asked = torch.cat([batch.response_ids[..., None], support_ids], dim=-1)[batch.tokens]
    cur = unpack(picked_logprobs(response_hidden(policy, batch), policy.head, asked), batch.tokens)
    teacher_support, support = _teaching(scored, support_ids, batch, settings)
    rewards = torch.tensor([float(entry.sample.reward or 0) for entry in scored])
    return LossInputs(
        tokens=batch.tokens,
        cur=cur[..., 0],
        old=_stack([entry.old for entry in scored], batch),
        rollout=_stack([torch.tensor(entry.sample.rollout_logprobs) for entry in scored], batch),
        advantages=rewards[:, None].expand(batch.tokens.shape),  # personal: A_i = r, not normalised
        scored=torch.tensor([entry.sample.reward is not None for entry in scored]),
        cur_support=cur[..., 1:],
        old_support=_stack([entry.old_support for entry in scored], batch),
        teacher_support=teacher_support,
        support=support,
        hinted=torch.tensor([bool(entry.sample.hints) for entry in scored]),
        base=None
        if scored[0].base is None
        else _stack([entry.base for entry in scored if entry.base is not None], batch),
    )


def _teaching(
    scored: Sequence[Scored], support_ids: Tensor, batch: Padded, settings: LossSettings
) -> tuple[Tensor, Tensor]:
    """Under the chosen hint: ℓ_teacher at the support, and which v belong to S_i; both (B, T, K)."""
    most = max(1, *(entry.teacher_ids.shape[0] for entry in scored))
    shape = (len(scored), most, *support_ids.shape[1:])
    values, ids = torch.zeros(shape), torch.full(shape, -1)
    for row, entry in enumerate(scored):
        count, length, _ = entry.teacher_ids.shape
        values[row, :count, :length] = entry.teacher_support
        ids[row, :count, :length] = entry.teacher_ids
    hints = torch.arange(most)[None] < torch.tensor([[entry.teacher_ids.shape[0]] for entry in scored])
    overlap = overlap_counts(support_ids, ids)
    choice = choose_hints(overlap, hints, batch.tokens, settings.hint_choice)
    support = batch.tokens[..., None].expand(support_ids.shape)
    if settings.support == "overlap":
        support = support & take_hint(shared_with(support_ids, ids), choice)
    return take_hint(values, choice), support


def _stack(values: Sequence[Tensor], batch: Padded) -> Tensor:
    """Per-sample (T, ...) tensors as one (B, T, ...), 0 where padded."""
    return unpack(torch.cat(list(values)), batch.tokens)
