"""Whether a new version may take the place of the one that serves: what it answers, beside that one and the base.

Figures first, from the served files (`answers.py`) and from the trainer, whose agreement with them has just been
checked (`validate.py`); then `objections`, a pure function of the figures. Nothing here was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import torch

from clawd.config import GateSettings, LossSettings
from clawd.degenerate import degenerate
from clawd.learner.job import Job, Sample
from clawd.learner.train.answers import Given
from clawd.learner.train.batch import Scored, loss_inputs, response_logprobs
from clawd.learner.train.forward import (
    TokenSequence,
    kl_to,
    micro_batches,
    pad,
    picked_logprobs,
    response_hidden,
    unpack,
)
from clawd.learner.train.losses import response_mean, support_weights
from clawd.learner.train.policy import Policy
from clawd.learner.train.probe import Answer

GARBLED_NATS = 4.0
"""An answer that the base finds less likely than this, per token, is no language of its: its own text lies near 1."""

LONGEST_PROMPT = 512
"""Tokens of a held-back sample's prompt that is put to the versions: a longer one takes too long to read."""

Figures = dict[str, float]


def with_held_back(job: Job, held_back: Sequence[Sample]) -> Job:
    """The job with probes for its own messages even where each recent message is trained on, as in a first update.

    The prompts of samples that aren't trained fill them up: a version goes wrong first at what its users ask.
    """
    free = max(0, job.settings.gate.own_answers - len(job.probes.own))
    prompts = [sample.prompt_ids for sample in held_back if len(sample.prompt_ids) <= LONGEST_PROMPT][:free]
    return job.model_copy(update={"probes": job.probes.model_copy(update={"own": job.probes.own + prompts})})


def measure(policy: Policy, job: Job, given: Mapping[str, Given], held_back: Sequence[Scored]) -> Figures:
    """All that the gate judges by; what couldn't be asked is left out."""
    figures: Figures = {}
    if given["base"].neutral:
        figures["neutral_kl"] = neutral_kl(policy, job, given["base"].neutral)
    base, own = given["base"].neutral + given["base"].own, given["base"].own
    candidate = given["candidate"].neutral + given["candidate"].own
    compared = [("candidate", candidate, base), ("base", base, base)]
    if "active" in given:
        compared += [("active", given["active"].own, own), ("base_own", own, own)]
    for name, answers, beside in compared:
        if answers:
            prompts = (job.probes.neutral + job.probes.own)[-len(answers) :]
            of_form = form(policy, prompts, answers, beside, job.settings.micro_batch_tokens)
            figures |= {f"{what}_{name}": value for what, value in of_form.items()}
    if held_back:
        figures["held_back_gain"] = fmean(gains(policy, held_back, job.settings.loss))
    return figures


def form(
    policy: Policy, prompts: Sequence[list[int]], answers: Sequence[Answer], base: Sequence[Answer], budget: int
) -> Figures:
    """Share of answers that are none; where the base's end: the mean length, and the share of those that don't end."""
    nats = base_nats(policy, prompts, [answer.ids for answer in answers], budget)
    bad = [
        degenerate(answer.ids, answer.text) is not None or surprise > GARBLED_NATS
        for answer, surprise in zip(answers, nats, strict=True)
    ]
    figures = {"degenerate": fmean(bad)}
    beside_ended = [answer for answer, of_base in zip(answers, base, strict=True) if of_base.ended]
    if beside_ended:
        figures["length"] = fmean(len(answer.ids) for answer in beside_ended)
        figures["runaway"] = fmean(not answer.ended for answer in beside_ended)
    return figures


@torch.no_grad()
def neutral_kl(policy: Policy, job: Job, answers: Sequence[Answer]) -> float:
    """Mean over the tokens of the base's own answers of KL(cur ‖ base), exact over the vocabulary."""
    pairs = zip(job.probes.neutral, answers, strict=True)
    sequences = [TokenSequence(prompt, answer.ids) for prompt, answer in pairs if answer.ids]
    found = []
    for group in micro_batches([sequence.length for sequence in sequences], job.settings.micro_batch_tokens):
        batch = pad([sequences[index] for index in group], policy.device)
        with policy.adapter_off():
            base = response_hidden(policy, batch)
        found.append(kl_to(response_hidden(policy, batch), base, policy.head))
    return float(torch.cat(found).mean())


@torch.no_grad()
def base_nats(policy: Policy, prompts: Sequence[list[int]], answers: Sequence[list[int]], budget: int) -> list[float]:
    """How surprised the base is by each answer, in nats per token; 0 for an empty one."""
    places = [place for place, ids in enumerate(answers) if ids]
    sequences = [TokenSequence(prompts[place], answers[place]) for place in places]
    surprise = [0.0] * len(answers)
    for group in micro_batches([sequence.length for sequence in sequences], budget):
        batch = pad([sequences[index] for index in group], policy.device)
        asked = batch.response_ids[batch.tokens][:, None]
        with policy.adapter_off():
            logprobs = unpack(picked_logprobs(response_hidden(policy, batch), policy.head, asked), batch.tokens)
        for row, index in enumerate(group):
            surprise[places[index]] = -float(logprobs[row, batch.tokens[row], 0].mean())
    return surprise


@torch.no_grad()
def gains(policy: Policy, held_back: Sequence[Scored], settings: LossSettings) -> list[float]:
    """For each sample, how far the update moved its way, in nats per token; below 0: against its signal.

    Where a teacher's whole distribution is learnt: by how much the divergence from it has shrunk. Else with a reward:
    r times the mean change of the response's log-probability. Without: the mean change at the support, weighted as the
    OPD term weighs it.
    """
    return [_gain(policy, scored, settings) for scored in held_back]


def _gain(policy: Policy, scored: Scored, settings: LossSettings) -> float:
    if scored.divergence is not None:
        return scored.divergence - _divergence(policy, scored, settings)
    return _reward_gain(policy, scored) if scored.sample.reward else _hint_gain(policy, scored, settings)


def _divergence(policy: Policy, scored: Scored, settings: LossSettings) -> float:
    inputs = loss_inputs(policy, [scored], settings)
    assert inputs.divergence is not None  # as it was while scoring
    return float(response_mean(inputs.divergence, inputs.tokens))


def _reward_gain(policy: Policy, scored: Scored) -> float:
    (new,) = response_logprobs(policy, [scored.sample], [[0]])
    return float((new - scored.old).mean()) * (scored.sample.reward or 0)


def _hint_gain(policy: Policy, scored: Scored, settings: LossSettings) -> float:
    inputs = loss_inputs(policy, [scored], settings)
    delta = inputs.teacher_support - inputs.old_support
    if settings.delta_clip is not None:
        delta = delta.clamp(-settings.delta_clip, settings.delta_clip)
    pull = support_weights(inputs.old_support, inputs.support) * delta
    return float((pull * (inputs.cur_support - inputs.old_support)).sum(dim=-1).mean())


def objections(figures: Mapping[str, float], settings: GateSettings, who: str = "candidate") -> list[str]:
    """What speaks against the version `who`; empty: nothing. NaN never passes.

    `candidate` is compared with the base on all prompts, `active`, the version that serves now, on the own messages.
    """
    checks: tuple[Callable[[Mapping[str, float], GateSettings, str], str | None], ...] = (
        _drifted,
        _degenerate,
        _length,
        _runaway,
    )
    found = [check(figures, settings, who) for check in checks]
    if who == "candidate":
        found.append(_wrong_way(figures, settings))
    return [reason for reason in found if reason is not None]


def _base_of(what: str, who: str) -> str:
    return f"{what}_base_own" if who == "active" else f"{what}_base"


def _drifted(figures: Mapping[str, float], settings: GateSettings, who: str) -> str | None:
    found, limit = figures.get("neutral_kl"), settings.max_neutral_kl
    if who != "candidate" or found is None or limit is None or found <= limit:
        return None
    return (
        f"it answers questions differently that nobody complained about: KL to the base {found:.3f} nats per token on "
        f"neutral prompts, more than learn.gate.max_neutral_kl = {limit:g}"
    )


def _degenerate(figures: Mapping[str, float], settings: GateSettings, who: str) -> str | None:
    found, limit = figures.get(f"degenerate_{who}"), settings.max_degenerate
    usual = figures.get(_base_of("degenerate", who), 0.0)
    if found is None or limit is None or found <= usual + limit:
        return None
    return (
        f"{found:.0%} of its answers are empty, of one token, garbled or endless repetition, and {usual:.0%} of "
        f"the base's: learn.gate.max_degenerate allows {limit:.0%} more"
    )


def _length(figures: Mapping[str, float], settings: GateSettings, who: str) -> str | None:
    found, usual, limit = figures.get(f"length_{who}"), figures.get(_base_of("length", who)), settings.max_length_ratio
    if found is None or not usual or limit is None or usual / limit <= found <= usual * limit:
        return None
    return (
        f"its answers are {found:.0f} tokens long in the mean, and the base's {usual:.0f}: beyond "
        f"learn.gate.max_length_ratio = {limit:g}"
    )


def _runaway(figures: Mapping[str, float], settings: GateSettings, who: str) -> str | None:
    found, limit = figures.get(f"runaway_{who}"), settings.max_runaway
    if found is None or limit is None or found <= limit:
        return None
    return (
        f"{found:.0%} of its answers don't come to an end where the base's do, more than "
        f"learn.gate.max_runaway = {limit:.0%}"
    )


def _wrong_way(figures: Mapping[str, float], settings: GateSettings) -> str | None:
    found, limit = figures.get("held_back_gain"), settings.max_wrong_way
    if found is None or limit is None or found >= -limit:
        return None
    return (
        f"it moves against what the held-back samples ask for, by {-found:.3f} nats per token, more than "
        f"learn.gate.max_wrong_way = {limit:g}"
    )
