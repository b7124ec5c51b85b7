"""From samples to tensors: which are trained, what is known of them before the first step, the inputs of the loss.

Guarantees that no sample is padded or cut to make it fit: it is trained as it was sampled, or left out with a reason.
Axes: B samples, M hints, T response tokens, K support; a leading B is a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import DynamicCache

from clawd.config import LearnSettings, LossSettings
from clawd.learner.job import Sample
from clawd.learner.train.advantages import advantages_of
from clawd.learner.train.forward import (
    Padded,
    TokenSequence,
    kl_from,
    kl_to,
    pad,
    picked_logprobs,
    read_head,
    response_hidden,
    unpack,
)
from clawd.learner.train.losses import LossInputs, response_mean
from clawd.learner.train.policy import Policy
from clawd.learner.train.teachers import Taught, Teaching, prefix_of, read_prefix, read_teacher, shared_length, teaching


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
    target: Tensor | None = None  # (T, H) what the head makes the teacher's whole distribution of; none: not asked for
    divergence: float | None = None  # from the teacher, mean over the response; none: no hint, or not asked for
    old_hidden: Tensor | None = None  # (T, H) what the head makes all of ℓ_old of; none: not asked for


@dataclass(frozen=True)
class Read:
    """What the student says about one sample under old."""

    response: Tensor  # (T,)
    entropy: Tensor  # (T,)
    ids: Tensor  # (T, K) its top-k
    support: Tensor  # (T, K)
    hidden: Tensor  # (T, H)


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
    read = read_groups(policy, samples, groups, settings, lot=lot, baseline=baseline)
    return in_order(groups, [_with_divergence(scored, inputs) for scored, inputs in read])


def _with_divergence(scored: Sequence[Scored], inputs: LossInputs) -> list[Scored]:
    if inputs.divergence is None:
        return list(scored)
    means = response_mean(inputs.divergence, inputs.tokens).tolist()
    return [
        replace(entry, divergence=mean if entry.sample.hints else None)
        for entry, mean in zip(scored, means, strict=True)
    ]


def in_order(groups: Sequence[list[int]], scored: Sequence[list[Scored]]) -> list[Scored]:
    """What was read group by group, in the order of the samples."""
    found = {
        index: entry
        for group, entries in zip(groups, scored, strict=True)
        for index, entry in zip(group, entries, strict=True)
    }
    return [found[index] for index in range(len(found))]


def read_groups(
    policy: Policy,
    samples: Sequence[Sample],
    groups: Sequence[list[int]],
    settings: LearnSettings,
    *,
    lot: str,
    baseline: float,
) -> Iterator[tuple[list[Scored], LossInputs]]:
    """Micro-batch by micro-batch: what is known of its samples before the first step, and that step's loss inputs.

    Both come from one forward pass, which keeps its graph where gradients are on: before the first step the current
    policy is the old one.
    """
    advantages, _ = advantages_of(samples, baseline)
    for group in groups:
        chosen = [samples[index] for index in group]
        batch = pad([sequence_of(sample) for sample in chosen], policy.device)
        base = _base(policy, batch, settings.loss)
        lends = settings.loss.teacher == "old" and any(sample.hints for sample in chosen)
        cache = DynamicCache() if lends else None
        asked = batch.response_ids[batch.tokens][:, None]
        hidden = response_hidden(policy, batch, cache)
        values, ids, entropy = read_head(hidden, policy.head, asked, settings.loss.support_k)
        reads = _split(values.detach(), ids[:, 1:], hidden.detach(), entropy, batch)
        scored = [
            _scored(policy, sample, advantages[index], reads[row], base[row], cache, row, settings, lot)
            for row, (index, sample) in enumerate(zip(group, chosen, strict=True))
        ]
        divergence = _divergence(policy, hidden, scored, batch, settings.loss)
        yield scored, _inputs(scored, batch, unpack(values, batch.tokens), divergence)


def _split(values: Tensor, ids: Tensor, hidden: Tensor, entropy: Tensor, batch: Padded) -> list[Read]:
    lengths = batch.tokens.sum(dim=1).tolist()
    columns = zip(*(torch.split(column, lengths) for column in (values, entropy, ids, hidden)), strict=True)
    return [Read(value[:, 0], spread, top, value[:, 1:], state) for value, spread, top, state in columns]


def _scored(
    policy: Policy,
    sample: Sample,
    advantage: float,
    read: Read,
    base: Tensor | None,
    cache: DynamicCache | None,
    row: int,
    settings: LearnSettings,
    lot: str,
) -> Scored:
    taught = None
    if sample.hints:
        taught = _teach(policy, sample, read.ids, cache, row, settings)
    lots = f"{lot}:{settings.seed}:{sample.sample_id}"
    told = teaching(taught, read.ids, settings.loss, lots)
    return Scored(
        sample=sample,
        advantage=advantage,
        old=read.response,
        old_entropy=read.entropy,
        support_ids=read.ids,
        old_support=read.support,
        teacher_support=told.support,
        support=told.members,
        base=base,
        target=_target(policy, sample, told, read, settings.loss),
        old_hidden=None if settings.kl_target is None else read.hidden,
    )


def _target(policy: Policy, sample: Sample, told: Teaching, read: Read, settings: LossSettings) -> Tensor | None:
    """(T, H): the teacher's state, moved further along what the hint has changed in it; the head is linear."""
    if settings.opd_form == "clipped":
        return None
    plain = read.hidden
    if told.hidden is None:
        return plain  # masked: the sample has no hint
    if settings.guidance == 1:
        return told.hidden
    if settings.teacher == "base":
        with torch.no_grad(), policy.adapter_off():
            plain = response_hidden(policy, pad([sequence_of(sample)], policy.device))
    return plain + settings.guidance * (told.hidden - plain)


def _teach(
    policy: Policy, sample: Sample, support_ids: Tensor, cache: DynamicCache | None, row: int, settings: LearnSettings
) -> Taught:
    shared, budget = shared_length(sample), settings.micro_batch_tokens
    if cache is not None:
        prefix = prefix_of(cache, row, shared) if shared else []
        return read_teacher(policy, sample, prefix, support_ids, budget)
    with policy.adapter_off():
        prefix = read_prefix(policy, sample.prompt_ids[:shared]) if shared else []
        return read_teacher(policy, sample, prefix, support_ids, budget)


@torch.no_grad()
def _base(policy: Policy, batch: Padded, settings: LossSettings) -> Sequence[Tensor | None]:
    """(T,) of each sequence: ℓ_base(y_i), if the loss asks for it."""
    if settings.kl_base_weight == 0:
        return [None] * len(batch.tokens)
    with policy.adapter_off():
        return _response_logprobs(policy, batch)


@torch.no_grad()
def response_logprobs(policy: Policy, samples: Sequence[Sample], groups: Sequence[list[int]]) -> list[Tensor]:
    """(T,) for every sample: log-probabilities of its response under the policy as it stands."""
    found: dict[int, Tensor] = {}
    for group in groups:
        batch = pad([sequence_of(samples[index]) for index in group], policy.device)
        found |= dict(zip(group, _response_logprobs(policy, batch), strict=True))
    return [found[index] for index in range(len(samples))]


def _response_logprobs(policy: Policy, batch: Padded) -> Sequence[Tensor]:
    asked = batch.response_ids[batch.tokens][:, None]
    values = picked_logprobs(response_hidden(policy, batch), policy.head, asked)[:, 0]
    return torch.split(values, batch.tokens.sum(dim=1).tolist())


def _divergence(
    policy: Policy, hidden: Tensor, scored: Sequence[Scored], batch: Padded, settings: LossSettings
) -> Tensor | None:
    """(B, T): the whole divergence between teacher and current policy, in the direction that the settings name."""
    if settings.opd_form == "clipped":
        return None
    targets = torch.cat([entry.target for entry in scored if entry.target is not None])
    measure = kl_from if settings.opd_form == "forward" else kl_to
    return unpack(measure(hidden, targets, policy.head), batch.tokens)


def loss_inputs(policy: Policy, scored: Sequence[Scored], settings: LossSettings) -> LossInputs:
    """One forward pass with gradient over a micro-batch, put beside what was known before."""
    batch = pad([sequence_of(entry.sample) for entry in scored], policy.device)
    support_ids = _stack([entry.support_ids for entry in scored], batch)
    asked = torch.cat([batch.response_ids[..., None], support_ids], dim=-1)[batch.tokens]
    hidden = response_hidden(policy, batch)
    cur = unpack(picked_logprobs(hidden, policy.head, asked), batch.tokens)
    return _inputs(scored, batch, cur, _divergence(policy, hidden, scored, batch, settings))


def _inputs(scored: Sequence[Scored], batch: Padded, cur: Tensor, divergence: Tensor | None) -> LossInputs:
    """`cur`: (B, T, 1 + K), of the response and of the support."""
    device = cur.device
    advantages = torch.tensor([entry.advantage for entry in scored], device=device)
    return LossInputs(
        tokens=batch.tokens,
        cur=cur[..., 0],
        old=_stack([entry.old for entry in scored], batch),
        rollout=_stack([entry.old.new_tensor(entry.sample.rollout_logprobs) for entry in scored], batch),
        advantages=advantages[:, None].expand(batch.tokens.shape),
        scored=torch.tensor([entry.sample.scored for entry in scored], device=device),
        cur_support=cur[..., 1:],
        old_support=_stack([entry.old_support for entry in scored], batch),
        teacher_support=_stack([entry.teacher_support for entry in scored], batch),
        support=_stack([entry.support for entry in scored], batch),
        hinted=torch.tensor([bool(entry.sample.hints) for entry in scored], device=device),
        divergence=divergence,
        base=None
        if scored[0].base is None
        else _stack([entry.base for entry in scored if entry.base is not None], batch),
    )


def _stack(values: Sequence[Tensor], batch: Padded) -> Tensor:
    """Per-sample (T, ...) tensors as one (B, T, ...), 0 where padded."""
    return unpack(torch.cat(list(values)), batch.tokens)
