"""In which order waiting requests begin when several people ask: in turn, not by who asked most.

Guarantees
* Whoever has the fewest running requests comes next; among equals, whose request waits longest. Requests of one owner
  begin in their order.
* Nobody starves: an owner without a running request is passed over only by older requests.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Protocol, TypeVar


class Owned(Protocol):
    @property
    def owner(self) -> str | None: ...

    @property
    def rank(self) -> tuple[bool, int, int]: ...  # a smaller one waits longer, no two are equal


Request = TypeVar("Request", bound=Owned)


def in_turn(running: Iterable[Owned], waiting: Iterable[Request]) -> Iterator[Request]:
    """`waiting`, of which each is in order by itself, as it should begin beside `running`."""
    counts = Counter(request.owner for request in running)
    queues: dict[str | None, deque[Request]] = {}
    for request in waiting:
        queues.setdefault(request.owner, deque()).append(request)
    turns = [(counts[owner], queue[0].rank, owner) for owner, queue in queues.items()]
    heapify(turns)
    while turns:
        count, _, owner = turns[0]
        queue = queues[owner]
        request = queue.popleft()
        if queue:
            heapreplace(turns, (count + 1, queue[0].rank, owner))
        else:
            heappop(turns)
        yield request


def who_makes_way(running: Iterable[Request], newcomer: Owned) -> Request | None:
    """Whose place `newcomer` takes if all are taken; None: it waits for one to end.

    Only an owner who has none running gets a place this way, and only from the owner who has most, if that is more
    than one: the request of theirs that began last.
    """
    by_owner: dict[str | None, list[Request]] = {}
    for request in running:
        by_owner.setdefault(request.owner, []).append(request)
    if newcomer.owner in by_owner:
        return None
    most = max(by_owner.values(), key=len, default=[])
    return max(most, key=lambda request: request.rank) if len(most) > 1 else None
