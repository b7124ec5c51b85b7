"""What is compared: an arm is a name, the daemon's settings that make it, and how its users are served.

A new arm is one line of `ARMS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NO_LEARNING = ("--learn.enabled", "false")
FORWARD = ("--learn.loss.opd_form", "forward", "--learn.loss.teacher", "base")
"""The whole divergence to a teacher that stays: what other arms vary."""

MemoryKind = Literal["notes", "mem0", "mem0-raw"]


@dataclass(frozen=True)
class Arm:
    name: str
    flags: tuple[str, ...] = ()  # of `clawd start`
    joint: bool = False  # all users share one adapter, and take turns
    memory: MemoryKind | None = None  # what past sessions leave in the system prompt; none: nothing

    @property
    def needs_mem0(self) -> bool:
        """The extra `bench-mem0`, and to extract a model with a long context."""
        return self.memory in ("mem0", "mem0-raw")


def _learning(name: str, *flags: str, joint: bool = False) -> Arm:
    return Arm(name, flags, joint)


_ARMS = (
    _learning("hybrid"),
    _learning("grpo", "--learn.loss.method", "grpo"),
    _learning("opd", "--learn.loss.method", "opd"),
    _learning("hint-random", "--learn.loss.hint_choice", "random"),
    _learning("hint-token", "--learn.loss.hint_choice", "token"),
    _learning("no-delta-clip", "--learn.loss.delta_clip", "None"),
    _learning("k1", "--learn.loss.support_k", "1"),
    _learning("k2", "--learn.loss.support_k", "2"),
    _learning("k8", "--learn.loss.support_k", "8"),
    _learning("teacher-base", "--learn.loss.teacher", "base"),
    _learning("card", "--learn.card", "true"),
    _learning("card-teacher-base", "--learn.card", "true", "--learn.loss.teacher", "base"),
    _learning("forward", *FORWARD),
    _learning("forward-old", "--learn.loss.opd_form", "forward"),
    _learning("reverse", "--learn.loss.opd_form", "reverse", "--learn.loss.teacher", "base"),
    _learning("forward-card", *FORWARD, "--learn.card", "true"),
    _learning("forward-guided", *FORWARD, "--learn.card", "true", "--learn.loss.guidance", "1.5"),
    _learning("joint", joint=True),
    _learning("joint-grpo", "--learn.loss.method", "grpo", joint=True),
    _learning("joint-opd", "--learn.loss.method", "opd", joint=True),
    Arm("none", NO_LEARNING),
    Arm("memory", NO_LEARNING, memory="notes"),
    Arm("memory-mem0", NO_LEARNING, memory="mem0"),
    Arm("memory-mem0-raw", NO_LEARNING, memory="mem0-raw"),
)
ARMS: dict[str, Arm] = {arm.name: arm for arm in _ARMS}
"""`hybrid` is the default settings: k 4, the old policy as teacher, choice by sequence, with the clip."""
