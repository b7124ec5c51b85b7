"""What is cleared away every minute: idle sessions, old job folders, version folders that never became versions."""

from __future__ import annotations

import logging

from clawd.config import SessionSettings
from clawd.learner import jobs
from clawd.learner.publish import Publisher
from clawd.paths import DataFolder
from clawd.store import Store

log = logging.getLogger(__name__)

JOBS_KEPT = 5
"""Ended job folders that stay, for a look at what went wrong."""


class Housekeeping:
    def __init__(self, data: DataFolder, store: Store, publisher: Publisher, settings: SessionSettings) -> None:
        self._data = data
        self._store = store
        self._publisher = publisher
        self._settings = settings

    def tick(self) -> None:
        closed = self._store.sessions.close_idle(self._settings.idle_close_s)
        if closed:
            log.info("closed %d idle sessions", closed)
        self._publisher.remove_leftovers()
        jobs.remove_ended(self._data, [update.id for update in self._store.updates.running()], JOBS_KEPT)
