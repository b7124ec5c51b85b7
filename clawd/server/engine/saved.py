"""Key-value states of long conversations on disk, so that a restarted server needn't read them again.

Guarantees
* A state is found only for the model file, adapter version, number format and llama.cpp that computed it.
* A file is whole or it is ignored and removed: its last bytes are a digest of all before them.
* The files take at most the bytes that they may; least recently used ones go first.
* They are readable by their owner alone: they hold what was said. They can be made again, so losing one costs time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clawd.server.engine.remembered import Tokens, common_prefix

log = logging.getLogger(__name__)

State = NDArray[np.uint8]
SUFFIX = ".state"
MAGIC = b"clawd state 1\n"
LONGEST_HEADER = 4096
DIGEST_BYTES = 32
SPARE_BYTES = 1_000_000_000
"""Left free on the disk: the store needs it more."""


@dataclass(frozen=True)
class Origin:
    """What a state depends on beside its tokens and adapter version."""

    base_fingerprint: str
    kv_type: str
    llama_cpp: str


@dataclass(frozen=True)
class Savable:
    """A state that could be saved; `fetch` computes its bytes."""

    version: str | None
    tokens: Tokens
    size: int
    fetch: Callable[[], State]


@dataclass(frozen=True)
class SavedState:
    path: Path
    version: str | None
    tokens: Tokens
    size: int  # of the file


class SavedStates:
    """The states in `folder`, at most `limit` bytes. All calls come from one thread."""

    def __init__(self, folder: Path, origin: Origin, limit: int) -> None:
        self._folder = folder
        self._origin = origin
        self._limit = limit
        self._states: dict[Path, SavedState] = {}
        self._open()

    def __len__(self) -> int:
        return len(self._states)

    def best(self, version: str | None, tokens: Tokens) -> tuple[SavedState | None, int]:
        """The state with the longest common prefix, and that length; (None, 0) if nothing is common."""
        known = [(common_prefix(s.tokens, tokens), s) for s in self._states.values() if s.version == version]
        length, state = max(known, key=lambda pair: pair[0], default=(0, None))
        return (state, length) if length else (None, 0)

    def read(self, saved: SavedState) -> State | None:
        """The bytes of a state; none: the file is gone or damaged, and no longer among the saved ones."""
        try:
            whole = np.fromfile(saved.path, np.uint8)
            os.utime(saved.path)  # the latest use
        except OSError as error:
            self.drop(saved, str(error))
            return None
        content, digest = whole[:-DIGEST_BYTES], whole[-DIGEST_BYTES:].tobytes()
        if len(whole) != saved.size or hashlib.sha256(content.data).digest() != digest:
            self.drop(saved, "it is damaged")
            return None
        return content[len(self._head(saved.version, saved.tokens)) :]

    def drop(self, saved: SavedState, reason: str) -> None:
        log.warning("the saved state %s can't be used and is removed: %s", saved.path, reason)
        self._remove(saved.path)

    def forget_version(self, version: str) -> None:
        """Nobody will ask for it again."""
        for saved in [saved for saved in self._states.values() if saved.version == version]:
            self._remove(saved.path)

    def save(self, wanted: Iterable[Savable], has_time: Callable[[int], bool]) -> int:
        """Keep what fits of `wanted` (most wanted first), then of what lay there before; how many were written.

        `has_time` says whether so many bytes can still be written. What can't be saved is logged, nothing is raised.
        """
        left, written, kept = self._limit, 0, set()
        try:
            for state in wanted:
                path = self._path(state.version, state.tokens)
                size = len(self._head(state.version, state.tokens)) + state.size + DIGEST_BYTES
                if size > left:
                    continue
                if path not in self._states:
                    if not has_time(size) or shutil.disk_usage(self._folder).free < size + SPARE_BYTES:
                        continue
                    self._write(path, state)
                    written += 1
                left -= size
                kept.add(path)
        except OSError as error:
            log.warning("conversations' states can't be saved: %s", error)
        self._make_room(kept, left)
        return written

    def _make_room(self, kept: set[Path], left: int) -> None:
        """Of all but `kept`, what has been used latest stays; what a kept one begins with is needless."""
        others = [saved for path, saved in self._states.items() if path not in kept]
        others.sort(key=lambda saved: _used(saved.path), reverse=True)
        for saved in others:
            version, tokens = saved.version, saved.tokens
            needless = any(
                self._states[path].version == version
                and common_prefix(self._states[path].tokens, tokens) == len(tokens)
                for path in kept
            )
            if needless or saved.size > left:
                self._remove(saved.path)
            else:
                left -= saved.size

    # -- files -------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Look through the folder. What isn't a state of ours, or not one that can be used now, is removed."""
        if self._folder.exists():
            for path in self._folder.iterdir():
                saved = self._look_at(path) if self._limit else None
                if saved is None:
                    self._remove(path)
                else:
                    self._states[path] = saved
        self._make_room(set(), self._limit)
        if self._limit:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _look_at(self, path: Path) -> SavedState | None:
        try:
            with path.open("rb") as file:
                return self._parse(path, file)
        except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
            log.info("%s is no saved state of this server: %s", path, error)
            return None

    def _parse(self, path: Path, file: BinaryIO) -> SavedState:
        if file.readline(len(MAGIC)) != MAGIC:
            raise ValueError("it doesn't begin as one")
        head = json.loads(file.readline(LONGEST_HEADER))
        count, version, size = int(head["tokens"]), head["version"], path.stat().st_size
        if not 0 <= 4 * count <= size:  # reading that many bytes would take memory for them first
            raise ValueError("it claims more tokens than it can hold")
        tokens = np.frombuffer(file.read(4 * count), np.int32)
        if len(tokens) != count or path != self._path(version, tokens):
            raise ValueError("it is of another model, adapter or llama.cpp, or cut")
        return SavedState(path, version, tokens, size)

    def _head(self, version: str | None, tokens: Tokens) -> bytes:
        about: dict[str, Any] = {**asdict(self._origin), "version": version, "tokens": len(tokens)}
        return MAGIC + json.dumps(about).encode() + b"\n" + tokens.astype("<i4").tobytes()

    def _path(self, version: str | None, tokens: Tokens) -> Path:
        return self._folder / (hashlib.sha256(self._head(version, tokens)).hexdigest() + SUFFIX)

    def _write(self, path: Path, state: Savable) -> None:
        head, data = self._head(state.version, state.tokens), state.fetch()
        digest = hashlib.sha256(head)
        digest.update(data.data)
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".")  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(head)
                file.write(data.data)
                file.write(digest.digest())
                size = file.tell()
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._states[path] = SavedState(path, state.version, state.tokens, size)

    def _remove(self, path: Path) -> None:
        self._states.pop(path, None)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # a folder, or a read-only disk
            log.warning("%s can't be removed: %s", path, error)


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
