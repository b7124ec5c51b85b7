"""Which adapter version answers which request, and how a new one takes over.

A request's version is looked up once, when it is accepted, and stays. `Versions` is the table that the lookup reads;
`Swapper` watches the store for staged versions and brings each in: check the file, load it, warm the prompts that its
users will need, record it as active, flip the table, let the old one go when its last request has ended. No version
answers whose file isn't, byte for byte, the one that was staged.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clawd.doorbell import Doorbell
from clawd.errors import AdapterError, AdapterRejected, EngineStopped, ModelError, NotAllowed
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
REMEDY = "Restore the file from a backup, or ask for another version (GET /v1/models lists them)."


@dataclass(frozen=True)
class Target:
    """What a request's model name came to."""

    adapter: Adapter | None  # none: the bare base was asked for by name
    version: AdapterVersion | None  # none: the bare base answers


def engine_version(version: Version) -> AdapterVersion:
    return AdapterVersion(version.id, version.adapter_id, version.number, version.folder / ADAPTER_FILE)


class AdapterFiles:
    """Checks the files of versions against what the store says of them and the model that is served."""

    def __init__(self, model: Path, base_fingerprint: str) -> None:
        self._model = model
        self._base_fingerprint = base_fingerprint
        self._verdicts: dict[str, tuple[tuple[int, int], str | None]] = {}  # version → (size, time of change), reason

    def check(self, version: Version) -> None:
        """Read the whole file of `version`; returns if it may be loaded.

        Raises:
            AdapterRejected: gone, not what was staged, or refused by `check_adapter_file`.
            ModelError: the model takes no adapters.
        """
        path = version.folder / ADAPTER_FILE
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise AdapterRejected(f"{path} can't be read: {error.strerror}") from None
        if found != version.gguf_sha256:
            raise AdapterRejected(f"{path} has changed since it was staged: its SHA-256 is not {version.gguf_sha256}")
        check_adapter_file(path, read_lora_base(self._model, self._base_fingerprint))

    def fault(self, version: Version) -> str | None:
        """Why `version` can't be used; None: it can. The file is read again only if its size or time has changed."""
        path = version.folder / ADAPTER_FILE
        try:
            status = path.stat()
        except OSError as error:
            return f"{path} can't be read: {error.strerror}"
        state = (status.st_size, status.st_mtime_ns)
        known = self._verdicts.get(version.id)
        if known is None or known[0] != state:
            known = self._verdicts[version.id] = (state, self._reason(version))
        return known[1]

    def _reason(self, version: Version) -> str | None:
        try:
            self.check(version)
        except (AdapterError, ModelError) as error:
            return str(error)
        return None


class Versions:
    """The table of active versions. Read by every request, changed by `flip` alone once `take_up` has filled it."""

    def __init__(self, store: Store, base_name: str, base_fingerprint: str) -> None:
        self._store = store
        self.base_name = base_name
        self.base_fingerprint = base_fingerprint
        self._lock = threading.Lock()
        self._active: dict[str, AdapterVersion] = {}
        self.unusable: dict[str, str] = {}  # adapter id → why its active version isn't served
        self._files: AdapterFiles | None = None  # none: before `take_up`

    def take_up(self, files: AdapterFiles) -> None:
        """At start, before the first request: active versions answer again, if they still can."""
        self._files = files
        for adapter in self._store.people.adapters():
            version = self._store.updates.active_version(adapter.id)
            if version is None:
                continue
            reason = self._fault(version)
            if reason is None:
                self._active[adapter.id] = engine_version(version)
                continue
            self.unusable[adapter.id] = f"{reason}; the bare {self.base_name} answers"
            log.error("adapter %s: %s", adapter.id, self.unusable[adapter.id])

    def _fault(self, version: Version) -> str | None:
        """Why `version` can't answer; None: it can."""
        if version.base_fingerprint != self.base_fingerprint:
            return (
                f"version {version.number} was trained on another model file than the one that is served "
                "(it works again when that file is)"
            )
        assert self._files is not None, "`take_up` comes first"
        fault = self._files.fault(version)
        return fault and f"version {version.number} can't be used: {fault.rstrip('.')}"

    def active(self, adapter_id: str) -> AdapterVersion | None:
        """What answers the adapter's requests now; None: the bare base."""
        with self._lock:
            return self._active.get(adapter_id)

    def drop(self, version: AdapterVersion, reason: str) -> None:
        """`version`, active, can't be had any more: the bare base answers, loudly."""
        with self._lock:
            self._active.pop(version.adapter_id, None)
            self.unusable[version.adapter_id] = f"{reason}; the bare {self.base_name} answers"
        log.error("adapter %s: %s", version.adapter_id, self.unusable[version.adapter_id])

    def flip(self, version: AdapterVersion) -> AdapterVersion | None:
        """From now on `version` answers its adapter's new requests; the one that did so until now."""
        with self._lock:
            before = self._active.get(version.adapter_id)
            self._active[version.adapter_id] = version
            self.unusable.pop(version.adapter_id, None)
            return before

    def all_active(self) -> list[AdapterVersion]:
        with self._lock:
            return list(self._active.values())

    def resolve(self, user: User, model: str) -> Target:
        """The adapter and version that a model name means for this user.

        Raises:
            ApiError: 404 for a name that means nothing.
            AdapterError: the version that is asked for by its number can't be used.
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
        active = self.active(adapter.id)
        if active is not None and active.id == version.id:
            return active  # as for those who don't name it
        fault = self._fault(version)
        if fault is not None:
            raise AdapterError(f"{model}: {fault}. {REMEDY}")
        return engine_version(version)


class Swapper:
    """A thread that brings staged versions in. Any failure leaves what serves as it is, and is written down."""

    def __init__(self, store: Store, engine: Engine, versions: Versions, model: Path, bell: Path) -> None:
        self._store = store
        self._engine = engine
        self._versions = versions
        self._files = AdapterFiles(model, versions.base_fingerprint)
        self._bell = Doorbell(bell)
        self._should_exit = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clawd-swapper", daemon=True)

    def start(self) -> None:
        """Returns when what was active before answers again; what is staged is brought in afterwards."""
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
                self.bring_in_staged()
            except Exception:
                # Whatever it was, requests are served on; the next look tries again.
                log.exception("looking for staged versions failed")
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
        self._files.check(staged)
        version = engine_version(staged)
        started = time.monotonic()
        self._engine.load(version).result()
        loaded = time.monotonic()
        before = self._versions.active(staged.adapter_id)
        try:
            warmed = self._warm(version, before)
            self._store.updates.activate(staged.id)
        except Exception:
            with suppress(EngineStopped):
                self._engine.retire(version.id)  # not served after all
            raise
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
