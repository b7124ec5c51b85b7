"""What stops an update while it is computed: each guard compares one figure with its setting and says what is wrong.

Pure functions of plain numbers. A figure that isn't a number never passes; a setting that is none asks for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from clawd.config import LearnSettings
from clawd.errors import UpdateRefused

HISTORY_DECAY = 0.7  # of the running mean of log gradient norms: the last three updates or so


def check_usable(used: int, given: int, settings: LearnSettings) -> None:
    """Raises: UpdateRefused: of what was claimed, too little can be trained."""
    if used == 0:
        raise UpdateRefused("No usable sample is left.")
    if used < settings.min_usable_share * given:
        raise UpdateRefused(
            f"Only {used} of {given} samples can be used, fewer than learn.min_usable_share = "
            f"{settings.min_usable_share:g} of them: something is wrong with what is collected."
        )


def check_gradient(norm: float, step: int, usual: float | None, settings: LearnSettings) -> None:
    """`usual` is what the adapter's earlier updates had; none: there was none. Raises: UpdateRefused."""
    absolute, growth = settings.max_grad_norm, settings.max_grad_growth
    if absolute is not None and not norm <= absolute:
        raise UpdateRefused(
            f"Step {step}: the gradient's norm is {norm:.3g}, more than learn.max_grad_norm = {absolute:g}."
        )
    if growth is not None and usual is not None and not norm <= growth * usual:
        raise UpdateRefused(
            f"Step {step}: the gradient's norm is {norm:.3g}, and {usual:.3g} in this adapter's earlier updates: more "
            f"than learn.max_grad_growth = {growth:g} times as much."
        )


def check_drift(metrics: Mapping[str, float], settings: LearnSettings, after: str) -> None:
    """What the steps so far did to the policy at the responses' tokens; what isn't measured yet isn't checked.

    Raises: UpdateRefused.
    """
    for name, limit, setting, what in (
        ("drift/kl_old", settings.max_kl_old, "max_kl_old", "version before"),
        ("drift/kl_base", settings.max_kl_base, "max_kl_base", "base model"),
    ):
        found = metrics.get(name)
        if found is not None and limit is not None and not found <= limit:
            raise UpdateRefused(
                f"{after}, the policy is {found:.3g} nats per token away from the {what}, "
                f"more than learn.{setting} = {limit:g}."
            )
    _check_entropy(metrics.get("drift/entropy_ratio"), settings.max_entropy_drift, after)


def _check_entropy(ratio: float | None, limit: float | None, after: str) -> None:
    if ratio is None or limit is None or 1 / limit <= ratio <= limit:
        return
    way = "more certain of itself" if ratio < 1 else "less certain of itself"
    raise UpdateRefused(
        f"{after}, the policy is much {way}: its entropy at the responses is {ratio:.3g} times what it was, beyond "
        f"learn.max_entropy_drift = {limit:g}."
    )


def running_norm(before: float | None, norm: float) -> float | None:
    """The adapter's usual gradient norm after this update: the mean of logarithms, so that one outlier moves it little.

    `norm` is the first step's: that of later ones falls to a hundredth where the ratio clip ends most of the loss. A
    gradient of zero says nothing of the scale.
    """
    if not norm > 0 or not math.isfinite(norm):
        return before
    if before is None:
        return norm
    return math.exp(HISTORY_DECAY * math.log(before) + (1 - HISTORY_DECAY) * math.log(norm))
