"""How another adapter version takes over while requests go on.

Staged versions come in by themselves, others because somebody wished so (`clawd.store.lifecycle`). Either way: check
the file, load it, warm the prompts that its users will need, record it as active, flip the table, let the old one go
when its last request has ended. Any failure leaves what serves as it is, and is written down.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from clawd.doorbell import Doorbell
from clawd.errors import (
    AdapterError,
    AdapterRejected,
    EngineStopped,
    ModelError,
    Superseded,
    TransitionRefused,
    UnknownName,
)
from clawd.server.engine.engine import Engine
from clawd.server.engine.types import AdapterVersion
from clawd.server.versions import AdapterFiles, Versions, engine_version
from clawd.store import Store
from clawd.store.records import Switch, Version

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
WARM_FROM_TOKENS = 256
"""Shorter prompts are read again on demand: that takes less time than a person notices."""
WARM_LIMIT_S = 600.0
"""Warming stands back for people. If they never pause, the version takes over without the rest after this time.

Long, because nobody misses a version that comes late, and the share of steps that warming has while eight streams run
reads a conversation of 3,000 tokens in some six minutes.
"""


class Swapper:
    """A thread that brings versions in."""

    def __init__(self, store: Store, engine: Engine, versions: Versions, model: Path, bell: Path) -> None:
        self._store = store
        self._engine = engine
        self._versions = versions
        self._files = AdapterFiles(model, versions.base_fingerprint)
        self._bell = Doorbell(bell)
        self._should_exit = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clawd-swapper", daemon=True)

    def start(self) -> None:
        """Returns when what was active before answers again; what waits is brought in afterwards."""
        self._versions.take_up(self._files)
        for adapter in self._store.people.adapters():
            for version in self._store.updates.versions(adapter.id):
                if version.state == "retired":  # in memory only while a request that names it runs
                    self._engine.retire(version.id)
        self._thread.start()

    def stop(self) -> None:
        """Ends after the swap that is going on, if any."""
        self._should_exit.set()
        self._thread.join()
        self._bell.close()

    def _run(self) -> None:
        self._keep_active()
        while not self._should_exit.is_set():
            try:
                self.grant_wishes()  # first: what is staged may have been superseded by one
                self.bring_in_staged()
            except Exception:
                # Whatever it was, requests are served on; the next look tries again.
                log.exception("looking for versions to bring in failed")
            self._bell.wait(LOOK_EVERY_S)

    def _keep_active(self) -> None:
        """Have what is active in memory, so that it answers whatever becomes of its file."""
        for version in self._versions.all_active():
            if self._should_exit.is_set():
                return
            try:
                self._engine.load(version).result()
            except AdapterRejected as error:
                self._versions.drop(version, f"version {version.number} can't be used: {str(error).rstrip('.')}")
            except EngineStopped:
                return

    def bring_in_staged(self) -> int:
        """Bring in what is staged now, oldest first; how many took over."""
        done = 0
        for version in self._store.updates.to_load():
            if self._should_exit.is_set() or not self._engine.alive:
                break
            try:
                self._bring_in(version)
                done += 1
            except Superseded as error:
                log.warning("adapter version %s is not brought in: %s", version.id, error)
                self._store.updates.supersede(version.id)
            except (AdapterError, ModelError) as error:
                log.error("adapter version %s refused: %s", version.id, error)
                self._store.updates.reject(version.id, str(error))
                self._store.event("version_rejected", version.id, reason=str(error))
        return done

    def grant_wishes(self) -> None:
        """Have the versions serve that somebody wished for, oldest wish first."""
        for switch in self._store.lifecycle.waiting_switches():
            if self._should_exit.is_set() or not self._engine.alive:
                break
            try:
                self._grant(switch)
            except (AdapterError, ModelError, TransitionRefused, UnknownName) as error:
                log.error("adapter %s stays as it is: %s", switch.adapter_id, error)
                with suppress(TransitionRefused):  # a later wish has overtaken it
                    self._store.lifecycle.refuse(switch, str(error))

    def _grant(self, switch: Switch) -> None:
        lifecycle = self._store.lifecycle
        before = self._versions.active(switch.adapter_id)
        if switch.version_id is None:
            lifecycle.grant(switch)
            self._versions.flip_to_base(switch.adapter_id)
            if before is not None:
                self._engine.retire(before.id)
            number = None
        else:
            chosen = self._store.updates.version(switch.version_id)
            number = chosen.number
            if before is not None and before.id == chosen.id:
                lifecycle.grant(switch)
                return
            fault = self._versions.fault(chosen)
            if fault is not None:
                raise AdapterRejected(f"{fault}.")
            self._take_over(chosen, lambda: lifecycle.grant(switch))
        self._store.event("version_switched", switch.adapter_id, number=number, by=switch.asked_by, why=switch.why)
        log.info("adapter %s: %s answers now", switch.adapter_id, f"version {number}" if number else "the bare base")

    def _bring_in(self, staged: Version) -> None:
        if staged.base_fingerprint != self._versions.base_fingerprint:
            raise AdapterRejected("it was trained on another model file than the one that is served")
        self._files.check(staged)
        started = time.monotonic()
        loaded, warmed = self._take_over(staged, lambda: self._store.updates.activate(staged.id))
        self._store.event(
            "version_active",
            staged.id,
            number=staged.number,
            load_s=round(loaded - started, 4),
            warm_s=round(time.monotonic() - loaded, 4),
            warm_tokens=warmed,
            published_to_served_s=round(time.time() - staged.staged_at, 4),
        )
        log.info("adapter %s: version %d answers now", staged.adapter_id, staged.number)

    def _take_over(self, chosen: Version, record: Callable[[], None]) -> tuple[float, int | None]:
        """Load, warm, `record`, flip; when it was loaded, and the tokens read ahead (None: not all in time)."""
        version = engine_version(chosen)
        self._engine.load(version).result()
        loaded = time.monotonic()
        before = self._versions.active(chosen.adapter_id)
        try:
            warmed = self._warm(version, before)
            record()
        except Exception:
            with suppress(EngineStopped):
                self._engine.retire(version.id)  # not served after all
            raise
        self._versions.flip(version)
        if before is not None:
            self._engine.retire(before.id)
        return loaded, warmed

    def _warm(self, version: AdapterVersion, before: AdapterVersion | None) -> int | None:
        """Tokens that were read ahead; None: not all in time."""
        warming = self._engine.warm(version, before, WARM_FROM_TOKENS, self._engine.context)
        deadline = time.monotonic() + WARM_LIMIT_S
        while not self._should_exit.is_set() and time.monotonic() < deadline:
            with suppress(TimeoutError):
                return warming.result(LOOK_EVERY_S)
        warming.cancel()
        return None
