"""Where updates are computed. A backend gets a job folder and leaves a result in it (`clawd.learner.job`); that is all.

A new backend is a new module with a class of this interface, and a line where the process chooses one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class RunningUpdate(Protocol):
    """One update that was started."""

    def poll(self) -> str | None:
        """None while it runs; then how its process ended, in words for a person."""

    def cancel(self) -> None:
        """End it now; returns when it has ended. Harmless if it has ended already."""


class Backend(Protocol):
    def unavailable(self) -> str | None:
        """Why no update can be computed here, and what to do about it; none: it can."""

    def prepare(self, base: Path, fingerprint: str, cache: Path) -> None:
        """An update of this base is to be expected: do in the background what is the same for all. Never raises.

        Called when the first sample waits, so that the first update needn't take the time.
        """

    def start(self, job: Path) -> RunningUpdate:
        """Begin to compute the job in folder `job`. Raises OSError if that can't be begun."""
