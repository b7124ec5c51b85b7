"""The size of an update by its measured effect: KL(cur ‖ old) per token, exact over the vocabulary, against a target.

A learning rate says how far the weights move, not what that does. `LearnSettings.kl_target` ends the steps of an update
once one has passed it; the step itself is shrunk until it is within, or kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from clawd.errors import UpdateRefused
from clawd.learner.train.batch import Scored, sequence_of
from clawd.learner.train.forward import kl_to, pad, response_hidden
from clawd.learner.train.policy import Policy

TRIES = 8
JUST_WITHIN = 0.97  # of the way to the target that the last try promises, so that the next one is within


class TrustRegion:
    """Watches the steps of one update. Call `before_step` and `after_step` around each."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        measure: Callable[[], float],
        target: float,
        excess: Literal["shrink", "stop"],
    ) -> None:
        """`measure` says KL(cur ‖ old) under the weights as they stand."""
        self._weights = weights
        self._measure = measure
        self._target = target
        self._excess = excess
        self._before: list[Tensor] = []
        self._kl = 0.0
        self.passed = False  # no further step is due

    def before_step(self) -> None:
        self._before = [weight.detach().clone() for weight in self._weights]

    def after_step(self) -> dict[str, float]:
        """The KL that is left and the share of the step that was kept, as metrics."""
        kl, share = self._measure(), 1.0
        self.passed = kl > self._target
        if self.passed and self._excess == "shrink":
            kl, share = shrink(self._weights, self._before, self._kl, kl, self._target, self._measure)
        self._kl = kl
        return {"trust/kl": kl, "trust/share": share}


@torch.no_grad()
def kl_to_old(policy: Policy, scored: Sequence[Scored], groups: Sequence[list[int]]) -> float:
    """Mean over all response tokens of KL(cur ‖ old), in nats; needs `Scored.old_hidden`.

    Raises:
        UpdateRefused: it isn't finite.
    """
    found = []
    for group in groups:
        hidden = response_hidden(policy, pad([sequence_of(scored[index].sample) for index in group], policy.device))
        old = torch.cat([state for index in group if (state := scored[index].old_hidden) is not None])
        found.append(kl_to(hidden, old, policy.head))
    mean = float(torch.cat(found).mean())
    if not math.isfinite(mean):
        raise UpdateRefused(f"KL(cur ‖ old) is {mean} after a step.")
    return mean


@torch.no_grad()
def shrink(
    weights: Sequence[Tensor],
    before: Sequence[Tensor],
    kl_before: float,
    kl_after: float,
    target: float,
    measure: Callable[[], float],
) -> tuple[float, float]:
    """Move `weights` back towards `before` until `measure()` is at most `target`; the KL then, and the share kept.

    The root of a KL grows about linearly along a step, so the first try is nearly right. 0 is kept if none is.
    """
    moves = [weight - start for weight, start in zip(weights, before, strict=True)]
    share, reached = 1.0, kl_after
    for _ in range(TRIES):
        wanted, far = math.sqrt(target) - math.sqrt(kl_before), math.sqrt(reached) - math.sqrt(kl_before)
        share *= JUST_WITHIN * max(0.0, wanted) / far
        _place(weights, before, moves, share)
        reached = measure()
        if reached <= target:
            return reached, share
    _place(weights, before, moves, 0.0)
    return kl_before, 0.0


def _place(weights: Sequence[Tensor], before: Sequence[Tensor], moves: Sequence[Tensor], share: float) -> None:
    for weight, start, move in zip(weights, before, moves, strict=True):
        weight.copy_(start + share * move)
