"""Adapter versions in memory: loaded at run time, set on the context, freed when nobody uses them.

All calls come from the engine's thread. An adapter file is read whole when it is loaded, so that what happens to the
file afterwards doesn't matter: a version that is wanted stays until it retires, whatever becomes of its file.
"""

from __future__ import annotations

import ctypes
import logging
from dataclasses import dataclass
from typing import Any

from clawd.errors import AdapterRejected
from clawd.model.llama import complaints, llama
from clawd.server.engine.types import AdapterVersion

logger = logging.getLogger(__name__)


@dataclass
class _Loaded:
    version: AdapterVersion
    pointer: Any  # llama.cpp's
    users: int = 0
    used: int = 0  # a clock of uses


class AdapterSet:
    """Versions loaded for one model and context: those wanted, those in use, and the latest `limit` of the others."""

    def __init__(self, model: int, context: int, limit: int) -> None:
        self._model = model
        self._context = context
        self._limit = limit
        self._loaded: dict[str, _Loaded] = {}
        self._wanted: set[str] = set()  # ids of loaded ones that are never unloaded
        self._retired: set[str] = set()  # ids, loaded or not: nobody but a running request keeps one in memory
        self._set: str | None = None  # what the context computes with
        self._clock = 0

    def __len__(self) -> int:
        return len(self._loaded)

    def __contains__(self, version_id: str) -> bool:
        return version_id in self._loaded

    def load(self, version: AdapterVersion) -> None:
        """Have `version` in memory, and keep it there until it retires.

        Raises:
            AdapterRejected: llama.cpp refuses the file; nothing has changed.
        """
        self._bring(version)
        self._retired.discard(version.id)
        self._wanted.add(version.id)

    def acquire(self, version: AdapterVersion) -> None:
        """Load if need be, and keep until `release`. A retired version stays retired: it is freed again after that.

        Raises:
            AdapterRejected: as `load`.
        """
        self._bring(version).users += 1

    def release(self, version_id: str) -> None:
        entry = self._loaded[version_id]
        entry.users -= 1
        if entry.users == 0 and version_id in self._retired:
            self._free(entry)
        else:
            self._unload_idle(spare=None)

    def retire(self, version_id: str) -> None:
        """Free `version_id` when its last user is gone, at once if it has none, and whenever it comes back to memory.

        It does come back: for a request that was accepted before and is admitted after, or one that names it.
        """
        self._retired.add(version_id)
        self._wanted.discard(version_id)
        entry = self._loaded.get(version_id)
        if entry is not None and entry.users == 0:
            self._free(entry)

    def use(self, version_id: str | None) -> None:
        """Let the context compute with this loaded version; none: the bare base. Free of cost if it does already."""
        if version_id == self._set:
            return
        if version_id is None:
            llama.llama_set_adapters_lora(self._context, None, 0, None)
        else:
            entry = self._loaded[version_id]
            self._touch(entry)
            pointers = (llama.llama_adapter_lora_p_ctypes * 1)(entry.pointer)
            scales = (ctypes.c_float * 1)(1.0)
            llama.llama_set_adapters_lora(self._context, pointers, 1, scales)
        self._set = version_id

    def close(self) -> None:
        for entry in list(self._loaded.values()):
            self._free(entry)

    def _bring(self, version: AdapterVersion) -> _Loaded:
        entry = self._loaded.get(version.id)
        if entry is None:
            entry = self._loaded[version.id] = _Loaded(version, self._read(version))
            logger.info("adapter %s version %d is loaded", version.adapter_id, version.number)
        self._touch(entry)
        self._unload_idle(spare=version.id)
        return entry

    def _read(self, version: AdapterVersion) -> Any:
        try:
            size = version.gguf.stat().st_size
        except OSError as error:
            raise AdapterRejected(f"The adapter file {version.gguf} can't be read: {error.strerror}.") from None
        if size == 0:
            raise AdapterRejected(f"The adapter file {version.gguf} is empty.")
        with complaints() as reasons:
            pointer = llama.llama_adapter_lora_init(self._model, str(version.gguf).encode())
        if not pointer:
            reason = "; ".join(reasons) or "llama.cpp gives no reason"
            raise AdapterRejected(f"The adapter file {version.gguf} doesn't fit this model: {reason}")
        return pointer

    def _unload_idle(self, spare: str | None) -> None:
        """Least recently used first, down to `limit`; what is wanted or in use stays."""
        others = [e for e in self._loaded.values() if e.version.id not in self._wanted]
        idle = [e for e in others if e.users == 0 and e.version.id != spare]
        idle.sort(key=lambda entry: entry.used)
        for entry in idle[: max(0, len(others) - self._limit)]:
            self._free(entry)

    def _touch(self, entry: _Loaded) -> None:
        self._clock += 1
        entry.used = self._clock

    def _free(self, entry: _Loaded) -> None:
        if self._set == entry.version.id:
            self.use(None)
        del self._loaded[entry.version.id]
        llama.llama_adapter_lora_free(entry.pointer)
        logger.info("adapter %s version %d is freed", entry.version.adapter_id, entry.version.number)
