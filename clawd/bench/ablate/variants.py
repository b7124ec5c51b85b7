"""The table of variants: one line each. `KEY: value` are settings under `learn`, beside the defaults.

`learn.lora` can't be varied here: what reads the versions afterwards is built once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clawd.config import LearnSettings


@dataclass(frozen=True)
class Variant:
    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = (
        1  # updates of the same batch that differ in `learn.seed`: first weights, and lots where hints are drawn
    )
    updates: int = 1  # in a row on the same batch, each from the version before

    def settings(self, seed: int) -> LearnSettings:
        """The defaults with what all variants share and what this one changes."""
        told: dict[str, Any] = {"seed": seed}
        for key, value in {**ALL, **self.changes}.items():
            *sections, name = key.split(".")
            place = told
            for section in sections:
                place = place.setdefault(section, {})
            place[name] = value
        return LearnSettings.model_validate(told)


ALL = {"gate.answers": 0, "gate.own_answers": 0, "gate.held_back": 0, "nice": 0}
"""No gate, so that all samples are trained; and nobody is served meanwhile whom an update could be in the way of."""

HYBRID, GRPO, OPD = "hybrid (default)", "grpo", "opd"
NO_CLIP = "no Δ clip"
RANDOM, K_1 = "hint by lot", "k 1"

VARIANTS = (
    Variant(HYBRID, seeds=3),
    Variant(GRPO, {"loss.method": "grpo"}),
    Variant(OPD, {"loss.method": "opd"}),
    Variant(NO_CLIP, {"loss.delta_clip": None}),
    Variant("no ratio clip", {"loss.clip_low": 0.999, "loss.clip_high": 1e6}),
    Variant("hint per token", {"loss.hint_choice": "token"}),
    Variant(RANDOM, {"loss.hint_choice": "random"}, seeds=4),
    Variant("support: overlap", {"loss.support": "overlap"}),
    Variant(K_1, {"loss.support_k": 1}),
    Variant("k 2", {"loss.support_k": 2}),
    Variant("k 8", {"loss.support_k": 8}),
    Variant("two updates", updates=2),
    Variant("two updates, teacher: base", {"loss.teacher": "base"}, updates=2),
    Variant("negative weight 0.2", {"loss.negative_weight": 0.2}),
    Variant("negative weight 0", {"loss.negative_weight": 0.0}),
    Variant("opd, forward KL", {"loss.method": "opd", "loss.opd_form": "forward"}),
    Variant("opd, reverse KL", {"loss.method": "opd", "loss.opd_form": "reverse"}),
    Variant("hybrid, forward KL, negative weight 0.2", {"loss.opd_form": "forward", "loss.negative_weight": 0.2}),
    Variant("opd, forward KL, guidance 1.5", {"loss.method": "opd", "loss.opd_form": "forward", "loss.guidance": 1.5}),
    Variant("card", {"card": True}),
    Variant("neutral weight 0.5", {"loss.neutral_weight": 0.5}),
    Variant("KL target 0.03", {"kl_target": 0.03}),
    Variant("KL target 0.01", {"kl_target": 0.01}),
)
"""In the order of the report. The default is k 4, choice by sequence, student's support, Δ clip 1, the old teacher."""

QUICK = (HYBRID, GRPO, OPD, NO_CLIP)


def chosen(quick: bool) -> Sequence[Variant]:
    """`quick`: a few, of one update each."""
    if not quick:
        return VARIANTS
    return [Variant(variant.name, variant.changes) for variant in VARIANTS if variant.name in QUICK]
