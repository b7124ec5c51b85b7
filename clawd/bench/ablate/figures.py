"""From what was measured of each variant to rows and goals: pure arithmetic."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawd.bench.ablate.reading import Spoken
from clawd.bench.ablate.variants import GRPO, HYBRID, K_1, NO_CLIP, OPD, RANDOM, Variant
from clawd.bench.report import Goal

LEAST_GAIN = 0.02  # nats, as the demo wants it
Spread = dict[str, float]


@dataclass(frozen=True)
class Measured:
    """A variant's last version under one seed."""

    gain: float  # nats per token, see `demo/gain.py`
    neutral_kl: float  # to the base, nats per token
    kl_old: float  # of the last update, nats per token
    spoken: Spoken
    seconds: float


@dataclass(frozen=True)
class Result:
    """A variant under all its seeds."""

    variant: Variant
    measured: Sequence[Measured]  # of the seeds that came to a version
    refused: Sequence[str]  # why others did not

    @property
    def gain(self) -> float | None:
        """Median; none: it came to no version."""
        return statistics.median(one.gain for one in self.measured) if self.measured else None


def row(result: Result, base: Spoken) -> dict[str, Any]:
    """Medians over the seeds; `range` holds [lowest, highest] where there are several."""
    found: dict[str, Callable[[Measured], float]] = {
        "gain": lambda one: one.gain,
        "neutral_kl": lambda one: one.neutral_kl,
        "kl_old": lambda one: one.kl_old,
        "length_change": lambda one: one.spoken.tokens - base.tokens,
        "cut": lambda one: one.spoken.cut,
        "satisfied": lambda one: one.spoken.satisfied,
        "seconds": lambda one: one.seconds,
    }
    values = {name: [read(one) for one in result.measured] for name, read in found.items()}
    figures = {name: _rounded(statistics.median(each)) if each else None for name, each in values.items()}
    several = len(result.measured) > 1
    return {
        "variant": result.variant.name,
        "changes": dict(result.variant.changes),
        "seeds": result.variant.seeds,
        "updates": result.variant.updates,
        **figures,
        "gain_per_kl": _quotient([one.gain / one.neutral_kl for one in result.measured if one.neutral_kl > 0]),
        "gain_per_root_kl": _quotient(
            [one.gain / math.sqrt(one.neutral_kl) for one in result.measured if one.neutral_kl > 0]
        ),
        "range": {name: [_rounded(min(each)), _rounded(max(each))] for name, each in values.items()} if several else {},
        "refused": "; ".join(dict.fromkeys(result.refused)) or None,
    }


def _quotient(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 2) if values else None


def _rounded(value: float) -> float:
    return round(value, 4)


def base_row(base: Spoken) -> dict[str, Any]:
    """The base's own greedy answers to the held-out questions."""
    return {"base": "greedy answers", "tokens": round(base.tokens, 1), "cut": base.cut, "satisfied": base.satisfied}


def goals(results: Sequence[Result]) -> list[Goal]:
    """What the paper claims of the parts, in nats of preference gain; of the variants that were run."""
    gains = {result.variant.name: result.gain for result in results}
    compared = {
        "hybrid_over_grpo": GRPO,
        "hybrid_over_opd": OPD,
        "hybrid_over_hint_by_lot": RANDOM,
        "hybrid_over_k_1": K_1,
    }
    found = [Goal("hybrid_gain_nats", _shown(gains.get(HYBRID)), LEAST_GAIN, "higher")]
    found += [
        Goal(f"{name}_nats", _less(gains, other), 0.0, "higher") for name, other in compared.items() if other in gains
    ]
    if NO_CLIP in gains:
        found.append(Goal("no_clip_cut_less_hybrid_cut", _cut_by_clip(results), 0.0, "higher"))
    return found


def _less(gains: Mapping[str, float | None], other: str) -> float | None:
    mine, theirs = gains.get(HYBRID), gains[other]
    return None if mine is None or theirs is None else _rounded(mine - theirs)


def _shown(value: float | None) -> float | None:
    return None if value is None else _rounded(value)


def _cut_by_clip(results: Sequence[Result]) -> float | None:
    """Share of cut answers without the clip, less that with it: the paper's grow without."""
    cut = {
        result.variant.name: statistics.median(one.spoken.cut for one in result.measured)
        for result in results
        if result.measured
    }
    return _rounded(cut[NO_CLIP] - cut[HYBRID]) if {NO_CLIP, HYBRID} <= cut.keys() else None
