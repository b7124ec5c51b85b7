"""People first: an update stands back while the server answers somebody, up to a total.

Guarantees that pausing changes no number, only when it is computed: an update gives the same bytes with and without.
Loads no torch.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from clawd.config import LearnSettings
from clawd.presence import VARIABLE, PresenceWatch

log = logging.getLogger(__name__)


class Courtesy:
    """The pauses of one update."""

    def __init__(self, pipe: Path | None = None, most_s: float = 0.0) -> None:
        """`pipe`: where the server tells whether people are present; none: nobody tells, so there is no pause.

        `most_s`: all pauses together; then the update goes on beside people.
        """
        self.pipe = pipe
        self.paused_s = 0.0
        self._most_s = most_s
        self._watch = None if pipe is None or most_s == 0 else _watch(pipe)

    @classmethod
    def of(cls, settings: LearnSettings) -> Courtesy:
        """As the settings say. Whoever starts the process has named the pipe, if there is one."""
        pipe = os.environ.get(VARIABLE)
        if pipe is None or not settings.pause_when_busy:
            return cls()
        return cls(Path(pipe), settings.max_pause_s)

    @property
    def left_s(self) -> float:
        """Pause that may still come."""
        return max(0.0, self._most_s - self.paused_s)

    def give_way(self) -> None:
        """Return when nobody is being answered, or when the pauses are used up. Costs a microsecond if nobody is."""
        if self._watch is None or self.left_s == 0 or not self._watch.present():
            return
        began = time.monotonic()
        self._watch.wait_for_absence(self.left_s)
        self.count(time.monotonic() - began)

    def count(self, paused_s: float) -> None:
        """A pause that was made, here or by a process that did a part of the update."""
        self.paused_s += paused_s


def _watch(pipe: Path) -> PresenceWatch | None:
    try:
        return PresenceWatch(pipe)
    except OSError as error:  # no reason to lose an update
        log.warning("no pause is made for people: %s", error)
        return None
