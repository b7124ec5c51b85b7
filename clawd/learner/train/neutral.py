"""A regulariser where nobody asked for change: KL(cur ‖ base) at the base's own answers to neutral prompts.

The job brings the prompts as token ids. The answers are the trainer's base's own, greedy, and kept in the cache folder:
they are the same for all updates of a base. The divergence is exact over the vocabulary.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from clawd.learner.train.forward import TokenSequence, kl_to, micro_batches, pad, response_hidden
from clawd.learner.train.losses import Mean, Metrics
from clawd.learner.train.policy import Policy

ANSWER_TOKENS = 48


@dataclass(frozen=True)
class NeutralGroup:
    """One micro-batch of N response tokens."""

    sequences: list[TokenSequence]
    base_hidden: Tensor  # (N, H)


def read_neutral(
    policy: Policy, prompts: Sequence[list[int]], cache: Path, key: str, budget: int
) -> list[NeutralGroup]:
    """The prompts with the base's answers, as the base reads them. `key` names the base and its number format."""
    answers = neutral_answers(policy, prompts, cache, key)
    sequences = [TokenSequence(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
    groups = []
    for group in micro_batches([sequence.length for sequence in sequences], budget):
        chosen = [sequences[index] for index in group]
        with torch.no_grad(), policy.adapter_off():
            groups.append(NeutralGroup(chosen, response_hidden(policy, pad(chosen, policy.device))))
    return groups


def accumulate_neutral(policy: Policy, groups: Sequence[NeutralGroup], weight: float) -> tuple[float, Metrics]:
    """Add the gradient of weight x mean over prompts of the mean KL over their tokens; the loss and its metrics."""
    prompts = sum(len(group.sequences) for group in groups)
    total, divergence = 0.0, Mean(0.0, 0.0)
    for group in groups:
        batch = pad(group.sequences, policy.device)
        values = kl_to(response_hidden(policy, batch), group.base_hidden, policy.head)
        means = [part.mean() for part in torch.split(values, batch.tokens.sum(dim=1).tolist())]
        loss = weight * torch.stack(means).sum() / prompts
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
        divergence = divergence.merged(Mean(float(values.detach().sum()), float(len(values))))
    return total, {"neutral/kl_base": divergence}


def neutral_answers(policy: Policy, prompts: Sequence[list[int]], cache: Path, key: str) -> list[list[int]]:
    """The base's greedy answers, from the cache if they are there."""
    digest = hashlib.sha256(json.dumps([list(prompts), ANSWER_TOKENS]).encode()).hexdigest()[:16]
    path = cache / f"neutral-{key}-{digest}.json"
    kept = _kept(path, len(prompts))
    if kept is None:
        kept = [greedy(policy, prompt, ANSWER_TOKENS) for prompt in prompts]
        aside = path.with_name(f".{path.name}.aside")
        aside.write_text(json.dumps(kept))
        aside.replace(path)
    return kept


def _kept(path: Path, count: int) -> list[list[int]] | None:
    try:
        answers: list[list[int]] = json.loads(path.read_text())
        whole = len(answers) == count and all(answer and all(type(i) is int for i in answer) for answer in answers)
    except (OSError, ValueError, TypeError):
        return None
    return answers if whole else None


@torch.no_grad()
def greedy(policy: Policy, prompt: Sequence[int], most: int) -> list[int]:
    """The base's most likely continuation, up to its end token."""
    ids = torch.tensor([list(prompt)], device=policy.device)
    with policy.adapter_off():
        whole: Tensor = policy.model.get_base_model().generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=most,
            do_sample=False,
            pad_token_id=0,  # one sequence at a time: nothing is padded
        )
    answer: list[int] = whole[0, len(prompt) :].tolist()
    return answer
