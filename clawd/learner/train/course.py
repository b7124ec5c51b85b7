"""What is known of a running update: it goes into the outcome, however the update ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from clawd.learner.job import Outcome
from clawd.learner.train.courtesy import Courtesy


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


@dataclass
class Course:
    metrics: dict[str, float] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    held_back: list[str] = field(default_factory=list)
    deferred: bool = False
    doubt: str | None = None
    needs_word: bool = False
    parent_fault: str | None = None
    courtesy: Courtesy = field(default_factory=Courtesy)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what is inside, pauses apart."""
        began, paused_s = time.monotonic(), self.courtesy.paused_s
        try:
            yield
        finally:
            self.metrics["train/paused_s"] = round(self.courtesy.paused_s, 3)
        self.seconds[name] = round(time.monotonic() - began - (self.courtesy.paused_s - paused_s), 3)
        emit("phase", name=name, seconds=self.seconds[name])

    def outcome(self, state: str, reason: str | None = None) -> Outcome:
        told = ("metrics", "quarantined", "held_back", "deferred", "doubt", "needs_word", "parent_fault")
        return Outcome.model_validate(
            {"state": state, "reason": reason, **{name: getattr(self, name) for name in told}}
        )
