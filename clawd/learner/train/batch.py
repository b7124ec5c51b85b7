"""From samples to tensors: which are trained, what is known of them before the first step, the inputs of the loss.

Guarantees that no sample is padded or cut to make it fit: it is trained as it was sampled, or left out with a reason.
Axes: B samples, M hints, T response tokens, K support; a leading B is a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clawd.config import LearnSettings, LossSettings
from clawd.learner.job import Sample
from clawd.learner.train.advantages import advantages_of
from clawd.learner.train.forward import (
    Padded,
    TokenSequence,
    entropies,
    micro_batches,
    pad,
    picked_logprobs,
    response_hidden,
    top_logprobs,
    unpack,
)
from clawd.learner.train.losses import LossInputs
from clawd.learner.train.overlap import choose_hints, drawn_hint, overlap_counts, shared_with, take_hint
from clawd.learner.train.policy import Policy


@dataclass(frozen=True)
class Scored:
    """What is known of one sample before the first step, without gradient."""

    sample: Sample
    advantage: float  # A, the same at every token
    old: Tensor  # (T,) ℓ_old(y_i)
    old_entropy: Tensor  # (T,) of the whole distribution under old
    support_ids: Tensor  # (T, K) S^q_i: the student's top-k under old
    old_support: Tensor  # (T, K)
    teacher_support: Tensor  # (T, K) ℓ_teacher at the student's support, under the chosen hint; 0 without one
    support: Tensor  # (T, K) bool: v ∈ S_i
    base: Tensor | None = None  # (T,) ℓ_base(y_i); none: not asked for
    old_hidden: Tensor | None = None  # (T, H) what the head makes all of ℓ_old of; none: not asked for


@dataclass(frozen=True)
class Read:
    """What the student says about one sample under old."""

    response: Tensor  # (T,)
    entropy: Tensor  # (T,)
    ids: Tensor  # (T, K) its top-k
    support: Tensor  # (T, K)
    hidden: Tensor | None  # (T, H)


@dataclass(frozen=True)
class Taught:
    """What the teacher says about one sample under each of its M hints."""

    support: Tensor  # (M, T, K) ℓ_teacher at the student's support
    ids: Tensor  # (M, T, K) S^p_{i,h}: the teacher's own top-k


def sequence_of(sample: Sample) -> TokenSequence:
    return TokenSequence(sample.prompt_ids, sample.response_ids)


def select(samples: Sequence[Sample], settings: LearnSettings, vocabulary: int) -> tuple[list[Sample], dict[str, str]]:
    """The samples to train, as the method reads them, and the reason for each one that is left out."""
    reasons = {sample.sample_id: _objection(sample, settings, vocabulary) for sample in samples}
    kept = [sample for sample in samples if reasons[sample.sample_id] is None]
    if settings.loss.method == "grpo":
        kept = [sample.model_copy(update={"hints": []}) for sample in kept]  # nobody need read them
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
    return _without_signal(sample, settings.loss.method)


def _without_signal(sample: Sample, method: str) -> str | None:
    rewarded = bool(sample.reward) or sample.task is not None
    if method == "grpo" and not rewarded:
        return "no reward, and learn.loss.method = grpo reads nothing else"
    if method == "opd" and not sample.hints:
        return "no hint, and learn.loss.method = opd reads nothing else"
    return None if rewarded or sample.hints else "neither a reward nor a hint: nothing to learn from"


@torch.no_grad()
def score(
    policy: Policy,
    samples: Sequence[Sample],
    groups: Sequence[list[int]],
    settings: LearnSettings,
    *,
    lot: str = "",
    baseline: float = 0.0,
) -> list[Scored]:
    """Read all samples under the old policy, bare and with each hint. `groups` are the micro-batches of training.

    `lot` is the job's own: from it hints are drawn where the settings leave their choice to chance.
    """
    k = settings.loss.support_k
    student = _student(policy, samples, groups, k)
    if settings.kl_target is None:
        student = [replace(entry, hidden=None) for entry in student]
    with policy.adapter_off() if settings.loss.teacher == "base" else nullcontext():
        taught = _teachers(policy, samples, [entry.ids for entry in student], settings.micro_batch_tokens, k)
    base: list[Tensor | None] = [None] * len(samples)
    if settings.loss.kl_base_weight > 0:
        with policy.adapter_off():
            base = list(response_logprobs(policy, samples, groups))
    advantages, _ = advantages_of(samples, baseline)
    scored = []
    for place, (sample, read) in enumerate(zip(samples, student, strict=True)):
        lots = f"{lot}:{settings.seed}:{sample.sample_id}"
        teacher_support, support = teaching(taught[place], read.ids, settings.loss, lots)
        scored.append(
            Scored(
                sample=sample,
                advantage=advantages[place],
                old=read.response,
                old_entropy=read.entropy,
                support_ids=read.ids,
                old_support=read.support,
                teacher_support=teacher_support,
                support=support,
                base=base[place],
                old_hidden=read.hidden,
            )
        )
    return scored


def teaching(taught: Taught, support_ids: Tensor, settings: LossSettings, lot: str) -> tuple[Tensor, Tensor]:
    """Under the chosen hint: ℓ_teacher at the support, and which v belong to S_i; both (T, K)."""
    count, length = taught.ids.shape[:2]
    if count == 0:
        return torch.zeros(support_ids.shape), torch.ones_like(support_ids, dtype=torch.bool)
    student_ids, teacher_ids = support_ids[None], taught.ids[None]
    if settings.hint_choice == "random":
        choice = torch.full((1, length), drawn_hint(count, lot))
    else:
        every = torch.ones(1, count, dtype=torch.bool), torch.ones(1, length, dtype=torch.bool)
        choice = choose_hints(overlap_counts(student_ids, teacher_ids), *every, settings.hint_choice)
    support = torch.ones_like(support_ids, dtype=torch.bool)
    if settings.support == "overlap":
        support = take_hint(shared_with(student_ids, teacher_ids), choice)[0]
    return take_hint(taught.support[None], choice)[0], support


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


def _student(policy: Policy, samples: Sequence[Sample], groups: Sequence[list[int]], k: int) -> list[Read]:
    found: dict[int, Read] = {}
    for group in groups:
        batch = pad([sequence_of(samples[index]) for index in group])
        asked = batch.response_ids[batch.tokens][:, None]
        hidden = response_hidden(policy, batch)
        columns = [*top_logprobs(hidden, policy.head, asked, k), hidden, entropies(hidden, policy.head)]
        lengths = batch.tokens.sum(dim=1).tolist()
        picked, ids, values, states, entropy = (torch.split(column, lengths) for column in columns)
        for row, index in enumerate(group):
            found[index] = Read(picked[row][:, 0], entropy[row], ids[row], values[row], states[row])
    return [found[index] for index in range(len(samples))]


def _teachers(
    policy: Policy, samples: Sequence[Sample], support_ids: Sequence[Tensor], budget: int, k: int
) -> list[Taught]:
    """What the policy says about each response with each of its hints."""
    jobs = [(index, hint) for index, sample in enumerate(samples) for hint in range(len(sample.hints))]
    sequences = [TokenSequence(samples[i].hints[h].prompt_ids, samples[i].response_ids) for i, h in jobs]
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
        _gathered([found[index, hint] for hint in range(len(sample.hints))], support_ids[index])
        for index, sample in enumerate(samples)
    ]


def _gathered(of_hints: Sequence[tuple[Tensor, Tensor]], support_ids: Tensor) -> Taught:
    if not of_hints:
        return Taught(torch.zeros(0, *support_ids.shape), support_ids.new_zeros(0, *support_ids.shape))
    return Taught(torch.stack([values for values, _ in of_hints]), torch.stack([ids for _, ids in of_hints]))


def loss_inputs(policy: Policy, scored: Sequence[Scored]) -> LossInputs:
    """One forward pass with gradient over a micro-batch, put beside what was known before."""
    batch = pad([sequence_of(entry.sample) for entry in scored])
    support_ids = _stack([entry.support_ids for entry in scored], batch)
    asked = torch.cat([batch.response_ids[..., None], support_ids], dim=-1)[batch.tokens]
    cur = unpack(picked_logprobs(response_hidden(policy, batch), policy.head, asked), batch.tokens)
    advantages = torch.tensor([entry.advantage for entry in scored])
    return LossInputs(
        tokens=batch.tokens,
        cur=cur[..., 0],
        old=_stack([entry.old for entry in scored], batch),
        rollout=_stack([torch.tensor(entry.sample.rollout_logprobs) for entry in scored], batch),
        advantages=advantages[:, None].expand(batch.tokens.shape),
        scored=torch.tensor([entry.sample.scored for entry in scored]),
        cur_support=cur[..., 1:],
        old_support=_stack([entry.old_support for entry in scored], batch),
        teacher_support=_stack([entry.teacher_support for entry in scored], batch),
        support=_stack([entry.support for entry in scored], batch),
        hinted=torch.tensor([bool(entry.sample.hints) for entry in scored]),
        base=None
        if scored[0].base is None
        else _stack([entry.base for entry in scored if entry.base is not None], batch),
    )


def _stack(values: Sequence[Tensor], batch: Padded) -> Tensor:
    """Per-sample (T, ...) tensors as one (B, T, ...), 0 where padded."""
    return unpack(torch.cat(list(values)), batch.tokens)
