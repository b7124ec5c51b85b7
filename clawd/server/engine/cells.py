"""Which key-value cells are taken, exactly, when sequences share prefixes.

llama.cpp's unified cache keeps one cell per token and lets several sequences refer to it; a cell is free again when the
last of them lets go. This is the same account, kept in plain Python so that the scheduler can plan with it.
"""

from __future__ import annotations

from collections.abc import Iterable


class CellLedger:
    """Cells of `total` by sequence. Cell numbers are the ledger's own; llama.cpp may place a token elsewhere."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._holders = [0] * total
        self._held: dict[int, list[int]] = {}

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def length(self, sequence: int) -> int:
        return len(self._held.get(sequence, ()))

    def cells(self, sequence: int) -> tuple[int, ...]:
        """Cells by position."""
        return tuple(self._held.get(sequence, ()))

    def extend(self, sequence: int, count: int) -> None:
        """Take `count` free cells for the next positions of `sequence`; there must be as many."""
        if count > len(self._free):
            raise ValueError(f"{count} cells are asked for and {len(self._free)} are free")
        held = self._held.setdefault(sequence, [])
        for _ in range(count):
            cell = self._free.pop()
            self._holders[cell] = 1
            held.append(cell)

    def share(self, source: int, target: int, count: int) -> None:
        """Let the empty sequence `target` refer to the first `count` cells of `source`."""
        if self._held.get(target):
            raise ValueError(f"sequence {target} is not empty")
        shared = self._held[source][:count]
        for cell in shared:
            self._holders[cell] += 1
        self._held[target] = shared

    def truncate(self, sequence: int, count: int) -> None:
        """Keep the first `count` positions of `sequence`."""
        held = self._held.get(sequence, [])
        for cell in held[count:]:
            self._holders[cell] -= 1
            if self._holders[cell] == 0:
                self._free.append(cell)
        if count:
            del held[count:]
        else:
            self._held.pop(sequence, None)

    def distinct(self, prefixes: Iterable[tuple[int, int]]) -> int:
        """How many cells the given (sequence, count of positions) hold together, shared ones counted once."""
        union: set[int] = set()
        for sequence, count in prefixes:
            union.update(self._held.get(sequence, [])[:count])
        return len(union)
