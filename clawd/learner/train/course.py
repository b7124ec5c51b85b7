"""What is known of a running update: it goes into the outcome, however the update ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from clawd.learner.job import Outcome


def emit(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


@dataclass
class Course:
    metrics: dict[str, float] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - began, 3)
        emit("phase", name=name, seconds=self.seconds[name])

    def outcome(self, state: str, reason: str | None = None) -> Outcome:
        return Outcome.model_validate(
            {"state": state, "reason": reason, "metrics": self.metrics, "quarantined": self.quarantined}
        )
