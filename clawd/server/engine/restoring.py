"""From the cache of a running server to disk and back: which conversations are saved when it stops, and when one is
fetched again.

All calls come from the engine's thread. Fetching one takes as long as reading its file: for a moment nobody else's
answer goes on, so it is done only where it saves reading many tokens.
"""

from __future__ import annotations

import importlib.metadata
import logging
import time
from functools import partial
from pathlib import Path

import numpy as np

from clawd.config import Settings
from clawd.server.engine.model import LoadedModel
from clawd.server.engine.remembered import Tokens
from clawd.server.engine.saved import Origin, Savable, SavedStates
from clawd.server.engine.scheduler import Scheduler

log = logging.getLogger(__name__)

SAVE_FROM_TOKENS = 512
"""Shorter conversations are read again: that takes a few seconds at most."""
RESTORE_FROM_TOKENS = 64
"""That many tokens must be missing in memory and lie on disk: fewer are read about as fast."""
SAVE_WITHIN_S = 2.0
SLOWEST_DISK = 100e6  # bytes/s: what might take longer at this speed isn't begun


def saved_states(folder: Path, base_fingerprint: str, settings: Settings) -> SavedStates:
    """What earlier servers left in `folder`, as far as this one can use it."""
    origin = Origin(base_fingerprint, settings.model.kv_type, importlib.metadata.version("llama-cpp-python"))
    return SavedStates(folder, origin, settings.server.saved_states_mb * 1_000_000)


class Restoring:
    def __init__(self, saved: SavedStates, scheduler: Scheduler, model: LoadedModel) -> None:
        self._saved = saved
        self._scheduler = scheduler
        self._model = model
        self.restored_tokens = 0

    def __len__(self) -> int:
        return len(self._saved)

    def restore(self, version: str | None, prompt: Tokens) -> None:
        """Bring the state from disk that `prompt` begins with into memory, if it's worth it."""
        saved, length = self._saved.best(version, prompt)
        if saved is None or not (self._model.can_trim or length == len(saved.tokens) < len(prompt)):
            return
        missing = length - self._scheduler.known(version, prompt)
        if missing < RESTORE_FROM_TOKENS:
            return
        if missing < length / 2 and self._scheduler.ledger.free < len(saved.tokens):
            return  # what others hold of it already would be held twice, and push somebody out
        state = self._saved.read(saved)
        slot = None if state is None else self._scheduler.adopt(version, saved.tokens)
        if state is None or slot is None:
            return
        self._model.apply(self._scheduler.take_operations())
        refusal = self._model.fill(slot, state)
        if refusal is None:
            self.restored_tokens += len(saved.tokens)
            return
        self._scheduler.disown(slot)
        self._saved.drop(saved, refusal)

    def forget_version(self, version: str) -> None:
        self._saved.forget_version(version)

    def save(self) -> None:
        """What people may come back to, latest first, as far as time and room go. Nothing runs any more."""
        self._model.apply(self._scheduler.take_operations())
        deadline = time.monotonic() + SAVE_WITHIN_S
        entries = sorted(self._scheduler.cache, key=lambda entry: -entry.used)
        wanted = [
            Savable(
                entry.version,
                np.ascontiguousarray(entry.tokens),
                self._model.state_size(entry.slot),
                partial(self._model.state, entry.slot),
            )
            for entry in entries
            if entry.keep and len(entry.tokens) >= SAVE_FROM_TOKENS
        ]
        written = self._saved.save(wanted, lambda size: time.monotonic() + size / SLOWEST_DISK <= deadline)
        log.info("the states of %d conversations were saved", written)
