"""From a result folder to a version that the server may load.

The folder moves to its final place in one rename, then one transaction makes it a version. Stopped anywhere, a reader
sees the old version or the new one: `publish` can be called again and goes on from where it was stopped, and a folder
that no row names is removed by `remove_leftovers`.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from clawd.learner import jobs
from clawd.learner.job import ADAPTER_GGUF, Manifest, Outcome
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import Update, Version

log = logging.getLogger(__name__)

ASIDE = "import-"
"""How folders in the cache begin in which an import is put together."""
ABANDONED_AFTER_S = 3600.0


class Publisher:
    def __init__(self, data: DataFolder, store: Store, ring: Callable[[], object]) -> None:
        """`ring` tells the server that there is something to load; if it isn't heard, the server finds it by itself."""
        self._data = data
        self._store = store
        self.ring = ring
        self._lock = threading.Lock()  # a folder between its rename and its row is no leftover

    def publish(self, update: Update, outcome: Outcome) -> Version:
        """Make the result of a running update a staged version.

        Raises:
            UpdateFailed: the result is incomplete or damaged.
            OSError: it can't be moved.
        """
        with self._lock:
            target = self._data.adapters / update.adapter_id / f"v{update.number:04d}"
            manifest = self._move(update, target)
            version = self._store.updates.stage(
                update.id,
                target,
                manifest.sha256[ADAPTER_GGUF],
                manifest.base_fingerprint,
                {**manifest.metrics, **outcome.metrics},
                outcome.quarantined,
                outcome.held_back,
                outcome.doubt,
                outcome.needs_word,
            )
        self.ring()
        return version

    def _move(self, update: Update, target: Path) -> Manifest:
        result = jobs.result_of(jobs.folder_of(self._data, update.id))
        if not result.exists() and target.exists():
            return jobs.read_result(target, update)  # stopped after the rename
        manifest = jobs.read_result(result, update)
        if target.exists():
            shutil.rmtree(target)  # of an update that was stopped before it had a row, or it would have this number
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (*result.iterdir(), result):
            sync(path)
        result.rename(target)
        sync(target.parent)
        return manifest

    def remove_leftovers(self) -> list[Path]:
        """Remove version folders that no row claims and no running update is about to claim; which.

        Other processes place folders too, each in one transaction with its row: while this one is open, there is none
        between the two.
        """
        with self._lock, self._store.transaction():
            known = self._store.lifecycle.claimed_folders()
            known |= {
                self._data.adapters / update.adapter_id / f"v{update.number:04d}"
                for update in self._store.updates.running()
            }
            leftovers = []
            for adapter in self._data.adapters.iterdir():
                if adapter.is_dir():
                    leftovers += [path for path in adapter.iterdir() if path not in known]
            for path in leftovers:
                log.info("removing %s: no version needs it", path)
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return leftovers


def remove_abandoned(data: DataFolder) -> None:
    """Clear away what imports that were killed have left."""
    for folder in data.cache.glob(f"{ASIDE}*"):
        if time.time() - folder.stat().st_mtime > ABANDONED_AFTER_S:
            shutil.rmtree(folder, ignore_errors=True)


def sync(path: Path) -> None:
    """Have the disk hold what was written to a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
