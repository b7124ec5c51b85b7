"""What is cleared away every minute: idle sessions, old job folders, old versions, folders that no version claims."""

from __future__ import annotations

import logging

from clawd.config import SessionSettings
from clawd.learner import jobs
from clawd.learner.publish import Publisher, remove_abandoned
from clawd.paths import DataFolder
from clawd.store import Store

log = logging.getLogger(__name__)

JOBS_KEPT = 5
"""Ended job folders that stay, for a look at what went wrong."""


class Housekeeping:
    def __init__(
        self, data: DataFolder, store: Store, publisher: Publisher, settings: SessionSettings, keep: int
    ) -> None:
        """`keep`: retired versions of each adapter that stay."""
        self._data = data
        self._store = store
        self._publisher = publisher
        self._settings = settings
        self._keep = keep

    def tick(self) -> None:
        closed = self._store.sessions.close_idle(self._settings.idle_close_s)
        if closed:
            log.info("closed %d idle sessions", closed)
        for version in self._store.lifecycle.prune(self._keep):
            log.info("version %d of adapter %s is given up: %s", version.number, version.adapter_id, version.reason)
        self._publisher.remove_leftovers()
        remove_abandoned(self._data)
        jobs.remove_ended(self._data, [update.id for update in self._store.updates.running()], JOBS_KEPT)
