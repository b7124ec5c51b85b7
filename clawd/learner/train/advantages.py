"""From rewards to advantages: pure functions of plain numbers.

Source: `docs/algorithm.md`, *Advantages*. Personal: A = r less a baseline, if there is one. General: relative to the
group of the steps with one index among the rollouts of one task. Nothing here knows tensors or a model.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import fmean, pstdev

from clawd.learner.job import Sample, Step

EPSILON = 1e-6


def step_reward(step: Step) -> float:
    """R_t = o + (Σ_j r_j) / m; the outcome alone where no vote is valid."""
    return step.outcome + (fmean(step.votes) if step.votes else 0.0)


def group_advantages(rewards: Sequence[float], groups: Sequence[Hashable]) -> tuple[list[float], int]:
    """A = (R - mean) / (std + 1e-6) within each group, and how many groups have no variance: there A is 0.

    The deviation is the group's own (divided by n, not n - 1): a group is all there is, and may be of one.
    """
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    advantages = [0.0] * len(rewards)
    flat = 0
    for places in members.values():
        of_group = [rewards[place] for place in places]
        if max(of_group) == min(of_group):  # not by the deviation, which rounding can leave above 0
            flat += 1
            continue
        mean, deviation = fmean(of_group), pstdev(of_group)
        for place in places:
            advantages[place] = (rewards[place] - mean) / (deviation + EPSILON)
    return advantages, flat


def advantages_of(samples: Sequence[Sample], baseline: float) -> tuple[list[float], int]:
    """A of each sample (0 without a score), and the number of groups without variance."""
    steps = [(place, sample.task) for place, sample in enumerate(samples) if sample.task is not None]
    relative, flat = group_advantages(
        [step_reward(step) for _, step in steps], [(step.group, step.index) for _, step in steps]
    )
    advantages = [0.0 if sample.reward is None else sample.reward - baseline for sample in samples]
    for (place, _), advantage in zip(steps, relative, strict=True):
        advantages[place] = advantage
    return advantages, flat


def running_mean(before: float | None, samples: Sequence[Sample], decay: float) -> float | None:
    """The adapter's mean reward after this batch: d · before + (1 - d) · batch; the batch's own at first."""
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    if not rewards:
        return before
    return fmean(rewards) if before is None else decay * before + (1 - decay) * fmean(rewards)


def no_signal(samples: Sequence[Sample]) -> str | None:
    """Why nothing can be told from this batch; none: something can.

    A = r gives a gradient even where all rewards are equal, but one without a contrast: a batch of -1s lets probability
    flow anywhere, one of +1s makes the policy more certain of whatever it does. So equal rewards are skipped as a group
    without variance is, unless a hint says which way. A single sample is equal to nothing. Where every response was
    cut, the rewards are about answers that nobody has seen the end of: they don't count either.
    """
    if any(sample.hints for sample in samples):
        return None
    if samples and all(sample.truncated for sample in samples):
        return f"all {len(samples)} responses were cut by their token limit and there is no hint"
    if len(samples) < 2:
        return None
    rewards = {sample.reward for sample in samples if sample.reward is not None}
    _, flat = advantages_of(samples, 0.0)
    groups = {(sample.task.group, sample.task.index) for sample in samples if sample.task is not None}
    if len(rewards) > 1 or flat < len(groups):
        return None
    if rewards and not groups:
        return f"all {len(samples)} rewards are {rewards.pop():+d} and there is no hint"
    return f"no group of rewards has any variance and there is no hint ({len(samples)} samples)"
