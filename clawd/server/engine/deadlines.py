"""Which requests have taken too long. Plain times in, keys out: whoever holds the requests ends them."""

from __future__ import annotations

from collections.abc import Callable

LOOK_EVERY_S = 0.25
"""A limit is kept to within this and one step."""


class Deadlines:
    """`wait_s`: for requests that have not begun; `request_s`: for all, from their arrival on. None: no limit."""

    def __init__(self, wait_s: float | None, request_s: float | None) -> None:
        self._wait_s = wait_s
        self._request_s = request_s
        self._arrived: dict[str, float] = {}
        self._may_wait: set[str] = set()  # however long it takes
        self._looked_at = float("-inf")

    def add(self, key: str, now: float, *, may_wait: bool) -> None:
        self._arrived[key] = now
        if may_wait:
            self._may_wait.add(key)

    def drop(self, key: str) -> None:
        self._arrived.pop(key, None)
        self._may_wait.discard(key)

    def passed(self, now: float, has_begun: Callable[[str], bool]) -> list[str]:
        """The keys that are past a limit; none as long as the last look is recent."""
        if now - self._looked_at < LOOK_EVERY_S:
            return []
        self._looked_at = now
        return [key for key, arrived in self._arrived.items() if self._is_late(key, now - arrived, has_begun)]

    def _is_late(self, key: str, age_s: float, has_begun: Callable[[str], bool]) -> bool:
        if self._request_s is not None and age_s >= self._request_s:
            return True
        if self._wait_s is None or age_s < self._wait_s or key in self._may_wait:
            return False
        return not has_begun(key)
