"""What becomes of an adapter whose updates go wrong.

Two ways to go wrong, each with a limit of its own. *Updates that are refused or fail*, one after another: the adapter
is halted, its samples wait, its requests are served on, until a person has looked (`clawd adapter resume NAME`).
*Versions that served and turned out bad*, one after another (whoever finds that says so with `hold_against`): the last
good one is brought back, and the adapter is halted. An update that was interrupted, or that a person's choice overtook,
is neither.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import takewhile

from clawd.config import LearnSettings
from clawd.learner.budget import NOT_ENOUGH
from clawd.store import Store
from clawd.store.records import Update, Version
from clawd.store.updates import SUPERSEDED

log = logging.getLogger(__name__)

INTERRUPTED = "interrupted"
BLAMELESS = (INTERRUPTED, SUPERSEDED, NOT_ENOUGH, "no signal", "none of its samples can be used", "no usable sample")
"""Parts of reasons that don't speak of learning that goes wrong: stopped, no room, nothing to learn from."""


class Trust:
    def __init__(self, store: Store, settings: LearnSettings) -> None:
        self._store = store
        self._settings = settings

    def review(self, adapter_id: str) -> None:
        """To be called when an update of the adapter has ended without a version."""
        limit = self._settings.halt_after
        bad = bad_in_a_row(self._store.updates.since_resumed(adapter_id))
        if limit is None or len(bad) < limit or self._store.lifecycle.halted(adapter_id):
            return
        reason = f"{len(bad)} updates in a row came to nothing, the last one: {bad[0].reason}"
        self._store.lifecycle.halt(adapter_id, reason)
        log.warning("adapter %s learns no more: %s", adapter_id, reason)

    def hold_against(self, version: Version, fault: str) -> Version | None:
        """A version that serves, or served, is bad. If too many in a row are, the last good one is brought back.

        Returns the version that serves next, if the server can load it; None: nothing changes, or the bare base does.
        """
        store = self._store
        store.lifecycle.hold_against(version.id, fault)
        active = store.updates.active_version(version.adapter_id)
        limit = self._settings.roll_back_after
        if active is None or limit is None:
            return None
        line = store.lifecycle.line_of(active)
        bad = list(takewhile(lambda one: one.fault is not None, line))
        if len(bad) < limit:
            return None
        good = next((one for one in line[len(bad) :] if one.fault is None and one.state == "retired"), None)
        reason = f"{len(bad)} versions in a row turned out bad, the last one: {bad[0].fault}"
        store.lifecycle.ask(version.adapter_id, good.id if good else None, "learner", reason)
        store.lifecycle.halt(version.adapter_id, reason)
        log.warning("adapter %s goes back to %s: %s", version.adapter_id, good.number if good else "the base", reason)
        return good


def bad_in_a_row(newest_first: Sequence[Update]) -> list[Update]:
    """The updates from the newest back to the last one that went well, without the blameless ones."""
    judged = (update for update in newest_first if not _is_blameless(update))
    return list(takewhile(lambda update: update.state in ("refused", "failed"), judged))


def _is_blameless(update: Update) -> bool:
    if update.state in ("running", "staged"):
        return True
    reason = (update.reason or "").lower()
    return any(part in reason for part in BLAMELESS)
