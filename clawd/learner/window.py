"""The times of `learn.cron`: at each a window opens, and it stays open until all that is due has been trained.

Whether one is open, and which times have been seen to, is in the store as events: a daemon that was down, or a machine
that slept, through several times makes up for them with one window, and says so.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, tzinfo

from apscheduler.triggers.cron import CronTrigger

from clawd.learner.due import times_between
from clawd.store import Store

log = logging.getLogger(__name__)

OPENED, CLOSED = "window.opened", "window.closed"
SUBJECT = "learn.cron"
LATE_S = 90.0
"""Later than this is worth a line in the log."""


class Window:
    def __init__(self, store: Store, cron: str, timezone: tzinfo | None = None) -> None:
        """`timezone`: in which the expression is meant; none: the machine's."""
        self._store = store
        self._trigger = CronTrigger.from_crontab(cron, timezone=timezone)
        told = store.newest_event((OPENED, CLOSED), SUBJECT)
        self.is_open = told is not None and told["kind"] == OPENED
        opened = store.newest_event((OPENED,), SUBJECT)
        seen = opened or told
        self._seen_until: float | None = json.loads(seen["detail"])["seen"] if seen else None  # none: not looked yet

    def look(self, now: float) -> None:
        """Open if a time has come since the last look. `now`: Unix seconds, of a clock that may have jumped."""
        if self._seen_until is None:
            self._store.event(CLOSED, SUBJECT, seen=now)  # from here on times count
        seen = now if self._seen_until is None else min(self._seen_until, now)  # it was set back: begin again from here
        self._seen_until = now
        after, until = (datetime.fromtimestamp(at, UTC) for at in (seen, now))
        count = times_between(self._trigger, after, until)
        if count == 0:
            return
        late = times_between(self._trigger, after, datetime.fromtimestamp(max(seen, now - LATE_S), UTC)) > 0
        if late:
            log.warning("%d times of learn.cron have passed unseen: one window makes up for them", count)
        self.is_open = True
        self._store.event(OPENED, SUBJECT, seen=now, times=count, late=late)

    def close(self) -> None:
        """All that was due is done."""
        if self.is_open:
            self.is_open = False
            self._store.event(CLOSED, SUBJECT, seen=self._seen_until)
