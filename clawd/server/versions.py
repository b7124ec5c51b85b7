"""Which adapter version answers which request.

A request's version is looked up once, when it is accepted, and stays. `Versions` is the table that the lookup reads;
`clawd.server.swapper` changes it. No version answers whose file isn't, byte for byte, the one that was staged, or that
was made for another base than the one that is served.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from dataclasses import dataclass
from pathlib import Path

from clawd.errors import AdapterError, AdapterRejected, ModelError, NotAllowed
from clawd.model import names
from clawd.model.lora import check_adapter_file, read_lora_base
from clawd.server.engine.types import AdapterVersion
from clawd.server.errors import ApiError
from clawd.store import Store
from clawd.store.records import Adapter, User, Version

log = logging.getLogger(__name__)

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
            reason = self.fault(version)
            if reason is None:
                self._active[adapter.id] = engine_version(version)
                continue
            self.unusable[adapter.id] = f"{reason}; the bare {self.base_name} answers"
            log.error("adapter %s: %s", adapter.id, self.unusable[adapter.id])

    def fault(self, version: Version) -> str | None:
        """Why `version` can't answer; None: it can."""
        if version.base_fingerprint != self.base_fingerprint:
            return (
                f"version {version.number} was trained on another model file ({version.base_fingerprint[:12]}) than "
                f"the one that is served ({self.base_fingerprint[:12]}); it works again when that file is"
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

    def flip_to_base(self, adapter_id: str) -> AdapterVersion | None:
        """From now on the bare base answers the adapter's new requests; what did so until now."""
        with self._lock:
            self.unusable.pop(adapter_id, None)
            return self._active.pop(adapter_id, None)

    def resolve(self, user: User, model: str) -> Target:
        """The adapter and version that a model name means for this user.

        An adapter whose version can't be used still answers those who don't name it, by the bare base: they asked for
        an answer. Who names it asks for that adapter, and is told why it can't.

        Raises:
            ApiError: 404 for a name that means nothing.
            AdapterError: what is asked for by name can't be used.
            NotAllowed: an adapter that isn't this user's, nor shared with them.
        """
        if model == self.base_name:
            return Target(None, None)
        asked = names.parse(model)
        if asked is None:
            raise _no_model(model)
        if asked.name is None:
            return Target(user.adapter, self.active(user.adapter.id))
        adapter = self._adapter(user, asked.name, model)
        if asked.number is not None:
            return Target(adapter, self._numbered(adapter, asked.number, model))
        reason = self.unusable.get(adapter.id)
        if reason is not None:
            raise AdapterError(f"{model}: {reason} to the model name {names.FAMILY!r}.")
        return Target(adapter, self.active(adapter.id))

    def _adapter(self, user: User, name: str, model: str) -> Adapter:
        people = self._store.people
        adapter = people.adapter_named(name)
        if adapter is None:
            raise _no_model(model, people.renamed_to(name))
        if not people.may_use(user, adapter):
            raise NotAllowed(f"The adapter {adapter.name!r} is not {user.name!r}'s, and not shared with them.")
        return adapter

    def _numbered(self, adapter: Adapter, number: int, model: str) -> AdapterVersion:
        version = self._store.updates.version_number(adapter.id, number)
        if version is None or version.state not in ("active", "retired"):
            raise _no_model(model)
        active = self.active(adapter.id)
        if active is not None and active.id == version.id:
            return active  # as for those who don't name it
        fault = self.fault(version)
        if fault is not None:
            raise AdapterError(f"{model}: {fault}. {REMEDY}")
        return engine_version(version)


def _no_model(model: str, renamed: str | None = None) -> ApiError:
    hint = f"it is called {names.adapter_model(renamed)!r} now" if renamed else "GET /v1/models lists all"
    return ApiError(404, f"There is no model {model!r}: {hint}.", code="model_not_found")
