"""Which adapter version answers which request, and how a new one takes over.

A request's version is looked up once, when it is accepted, and stays. `Versions` is the table that the lookup reads;
`Swapper` watches the store for staged versions and brings each in: check the file, load it, warm the prompts that its
users will need, record it as active, flip the table, let the old one go when its last request has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clawd.doorbell import Doorbell
from clawd.errors import AdapterError, AdapterRejected, ModelError, NotAllowed
from clawd.model import names
from clawd.model.lora import check_adapter_file, read_lora_base
from clawd.server.engine.engine import Engine
from clawd.server.engine.types import AdapterVersion
from clawd.server.errors import ApiError
from clawd.store import Store
from clawd.store.records import Adapter, User, Version

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
WARM_FROM_TOKENS = 256
"""Shorter prompts are read again on demand: that takes less time than a person notices."""
WARM_LIMIT_S = 120.0
"""Warming stands back for people. If they never pause, the version takes over without the rest after this time."""
ADAPTER_FILE = "adapter.gguf"


@dataclass(frozen=True)
class Target:
    """What a request's model name came to."""

    adapter: Adapter | None  # none: the bare base was asked for by name
    version: AdapterVersion | None  # none: the bare base answers


def engine_version(version: Version) -> AdapterVersion:
    return AdapterVersion(version.id, version.adapter_id, version.number, version.folder / ADAPTER_FILE)


class Versions:
    """The table of active versions. Read by every request, changed by `activate` alone."""

    def __init__(self, store: Store, base_name: str, base_fingerprint: str) -> None:
        self._store = store
        self.base_name = base_name
        self.base_fingerprint = base_fingerprint
        self._lock = threading.Lock()
        self._active: dict[str, AdapterVersion] = {}
        self.unusable: dict[str, str] = {}  # adapter id → why its active version isn't served
        for adapter in store.people.adapters():
            version = store.updates.active_version(adapter.id)
            if version is not None:
                self._take_up(version)

    def _take_up(self, version: Version) -> None:
        """At start: an active version answers again, if it was made for the model that is served now."""
        if version.base_fingerprint != self.base_fingerprint:
            reason = (
                f"version {version.number} was trained on another model file; the bare {self.base_name} answers. "
                "It works again when that file is served."
            )
        elif not (version.folder / ADAPTER_FILE).is_file():
            reason = f"{version.folder / ADAPTER_FILE} is missing; the bare {self.base_name} answers."
        else:
            self._active[version.adapter_id] = engine_version(version)
            return
        self.unusable[version.adapter_id] = reason
        log.error("adapter %s: %s", version.adapter_id, reason)

    def active(self, adapter_id: str) -> AdapterVersion | None:
        """What answers the adapter's requests now; None: the bare base."""
        with self._lock:
            return self._active.get(adapter_id)

    def flip(self, version: AdapterVersion) -> AdapterVersion | None:
        """From now on `version` answers its adapter's new requests; the one that did so until now."""
        with self._lock:
            before = self._active.get(version.adapter_id)
            self._active[version.adapter_id] = version
            self.unusable.pop(version.adapter_id, None)
            return before

    def resolve(self, user: User, model: str) -> Target:
        """The adapter and version that a model name means for this user.

        Raises:
            ApiError: 404 for a name that means nothing.
            NotAllowed: another user's adapter.
        """
        if model == self.base_name:
            return Target(None, None)
        asked = names.parse(model)
        adapter = None
        if asked is not None:
            adapter = user.adapter if asked.name is None else self._store.people.adapter_named(asked.name)
        if asked is None or adapter is None:
            raise ApiError(404, f"There is no model {model!r}: GET /v1/models lists all.", code="model_not_found")
        if adapter.id != user.adapter.id:
            raise NotAllowed(f"The adapter {adapter.name!r} is not {user.name!r}'s.")
        if asked.number is None:
            return Target(adapter, self.active(adapter.id))
        return Target(adapter, self._numbered(adapter, asked.number, model))

    def _numbered(self, adapter: Adapter, number: int, model: str) -> AdapterVersion:
        version = self._store.updates.version_number(adapter.id, number)
        if version is None or version.state not in ("active", "retired"):
            raise ApiError(404, f"There is no model {model!r}: GET /v1/models lists all.", code="model_not_found")
        if version.base_fingerprint != self.base_fingerprint:
            raise ApiError(409, f"{model} was trained on another model file than the one that is served.")
        return engine_version(version)


class Swapper:
    """A thread that brings staged versions in. Any failure leaves what serves as it is, and is written down."""

    def __init__(self, store: Store, engine: Engine, versions: Versions, model: Path, bell: Path) -> None:
        self._store = store
        self._engine = engine
        self._versions = versions
        self._model = model
        self._bell = Doorbell(bell)
        self._should_exit = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clawd-swapper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after the swap that is going on, if any."""
        self._should_exit.set()
        self._thread.join()
        self._bell.close()

    def _run(self) -> None:
        while not self._should_exit.is_set():
            try:
                self.bring_in_staged()
            except Exception:
                # Whatever it was, requests are served on; the next look tries again.
                log.exception("looking for staged versions failed")
            self._bell.wait(LOOK_EVERY_S)

    def bring_in_staged(self) -> int:
        """Bring in what is staged now, oldest first; how many took over."""
        done = 0
        for version in self._store.updates.staged_versions():
            if self._should_exit.is_set() or not self._engine.alive:
                break
            try:
                self._bring_in(version)
                done += 1
            except (AdapterError, ModelError) as error:
                log.error("adapter version %s refused: %s", version.id, error)
                self._store.updates.reject(version.id, str(error))
                self._store.event("version_rejected", version.id, reason=str(error))
        return done

    def _bring_in(self, staged: Version) -> None:
        if staged.base_fingerprint != self._versions.base_fingerprint:
            raise AdapterRejected("it was trained on another model file than the one that is served")
        version = engine_version(staged)
        check_adapter_file(version.gguf, read_lora_base(self._model, self._versions.base_fingerprint))
        started = time.monotonic()
        self._engine.load(version).result()
        loaded = time.monotonic()
        before = self._versions.active(staged.adapter_id)
        warmed = self._warm(version, before)
        self._store.updates.activate(staged.id)
        self._versions.flip(version)
        if before is not None:
            self._engine.retire(before.id)
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

    def _warm(self, version: AdapterVersion, before: AdapterVersion | None) -> int | None:
        """Tokens that were read ahead; None: not all in time."""
        warming = self._engine.warm(version, before, WARM_FROM_TOKENS, self._engine.context)
        deadline = time.monotonic() + WARM_LIMIT_S
        while not self._should_exit.is_set() and time.monotonic() < deadline:
            with suppress(TimeoutError):
                return warming.result(LOOK_EVERY_S)
        warming.cancel()
        return None
