"""The prompt cache: sequences that have ended and keep their key-value state for a conversation's next turn.

A remembered sequence is found by the longest common token prefix under the same adapter version, never across
versions, as key-value cells depend on the weights that computed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


class TokenBuffer:
    """Tokens that grow at the end, readable as one array without a copy."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._array: Tokens = np.empty(len(tokens) + 64, np.int32)
        self._array[: len(tokens)] = tokens
        self._length = len(tokens)

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> Tokens:
        return self._array[: self._length]

    def append(self, token: int) -> None:
        if self._length == len(self._array):
            self._array = np.concatenate([self._array, np.empty(self._length, np.int32)])
        self._array[self._length] = token
        self._length += 1


def common_prefix(a: Tokens, b: Tokens) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    first = int(differ.argmax()) if n else 0
    return first if n and differ[first] else n


@dataclass(eq=False)
class Remembered:
    slot: int
    version: str | None
    tokens: Tokens
    keep: int  # 0: let go before any of 1
    used: int  # a clock of uses


class PromptCache:
    """Remembered sequences, at most `limit`. Says who must go; whoever holds the cells lets them go.

    `can_trim`: a part of a sequence can be used, so that one which is a prefix of another is needless.
    """

    def __init__(self, limit: int, *, can_trim: bool = True) -> None:
        self.limit = limit
        self.can_trim = can_trim
        self._entries: list[Remembered] = []
        self._clock = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Remembered]:
        return iter(self._entries)

    def add(self, slot: int, version: str | None, tokens: Tokens, *, keep: int) -> list[Remembered]:
        """Remember a sequence; returns those that this makes needless or too many (perhaps itself), taken out."""
        self._clock += 1
        entry = Remembered(slot, version, tokens, keep, self._clock)
        gone = [
            other
            for other in self._entries
            if self.can_trim
            and other.version == version
            and len(other.tokens) <= len(tokens)
            and common_prefix(other.tokens, tokens) == len(other.tokens)
        ]
        entry.keep = max([keep, *(other.keep for other in gone)])
        self._entries = [other for other in self._entries if other not in gone]
        self._entries.append(entry)
        while len(self._entries) > self.limit:
            gone.append(self.pop_oldest())
        return gone

    def best(self, version: str | None, tokens: Tokens) -> tuple[Remembered | None, int]:
        """The entry with the longest usable common prefix, and that length; (None, 0) if nothing is common."""
        best, length = None, 0
        for entry in self._entries:
            if entry.version == version:
                common = common_prefix(entry.tokens, tokens)
                usable = self.can_trim or common == len(entry.tokens) < len(tokens)
                if usable and common > length:
                    best, length = entry, common
        return best, length

    def touch(self, entry: Remembered) -> None:
        self._clock += 1
        entry.used = self._clock

    def remove(self, entry: Remembered) -> None:
        self._entries.remove(entry)

    def pop_oldest(self, spare: Remembered | None = None) -> Remembered:
        """Take out the least recently used entry but `spare`; there must be one."""
        entry = min((e for e in self._entries if e is not spare), key=lambda e: (e.keep, e.used))
        self._entries.remove(entry)
        return entry

    def pop_version(self, version: str | None) -> list[Remembered]:
        gone = [entry for entry in self._entries if entry.version == version]
        self._entries = [entry for entry in self._entries if entry.version != version]
        return gone
