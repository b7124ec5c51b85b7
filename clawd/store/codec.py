"""Between Python values and what a column holds: id and log-probability arrays, times, ids, hashes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from ulid import ULID

from clawd.errors import StoreError

IDS = np.dtype("<u4")
LOGPROBS = np.dtype("<f4")


def new_id() -> str:
    """A ULID: sorts by time of making."""
    return str(ULID())


def now() -> float:
    """Seconds since the epoch, UTC: the form of every time in the store."""
    return time.time()


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids as little-endian uint32."""
    return np.asarray(ids, dtype=IDS).tobytes()


def unpack_ids(blob: bytes) -> list[int]:
    values: list[int] = np.frombuffer(blob, dtype=IDS).tolist()
    return values


def pack_logprobs(logprobs: Sequence[float]) -> bytes:
    """Log-probabilities as little-endian float32."""
    return np.asarray(logprobs, dtype=LOGPROBS).tobytes()


def unpack_logprobs(blob: bytes) -> list[float]:
    values: list[float] = np.frombuffer(blob, dtype=LOGPROBS).tolist()
    return values


def pack_json(value: Any) -> str:
    """The one textual form of a JSON value, so that equal values have equal texts and hashes.

    Pure ASCII: a client can send half a surrogate pair, which no UTF-8 column takes.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def pack_json_as_sent(value: Any) -> str:
    """As `pack_json`, in the order of keys that the client chose: templates write tools and calls in it."""
    return json.dumps(value, separators=(",", ":"))


def clean_text(text: str) -> str:
    """`text` as UTF-8 can hold it: half a surrogate pair, which JSON can carry, becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def content_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """How many leading items two sequences share."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def require_equal_lengths(ids: Sequence[int], logprobs: Sequence[float]) -> None:
    """Ids and log-probabilities belong together one by one; padding one of them would train on made-up numbers."""
    if len(ids) != len(logprobs):
        raise StoreError(f"A response of {len(ids)} tokens came with {len(logprobs)} log-probabilities; refused.")
