"""What the routes share: made once at start, handed to the application."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawd.config import Settings
from clawd.doorbell import ring
from clawd.model.prompt import PromptRenderer
from clawd.model.replies.families import ReplyFormat
from clawd.model.vocab import Vocabulary
from clawd.paths import DataFolder
from clawd.server.engine.engine import Engine
from clawd.server.metrics import Metrics
from clawd.server.structure import Structure
from clawd.server.versions import Versions
from clawd.store import Store

MOST_NAMES = 200
LONGEST_NAME = 100
OTHERS = "(others)"


@dataclass
class Services:
    settings: Settings
    folder: DataFolder
    store: Store
    engine: Engine
    vocabulary: Vocabulary
    renderer: PromptRenderer
    replies: ReplyFormat
    structure: Structure
    versions: Versions
    metrics: Metrics
    model_path: Path
    model_is_embedded: bool
    binding_note: str | None = None  # none: llama.cpp's binding works as it should
    owner_key: str | None = None  # none: started without a daemon
    in_flight: int = 0  # requests that were let in and have not ended
    in_flight_of: Counter[str | None] = field(default_factory=Counter)  # the same by user
    started_at: float = field(default_factory=time.time)
    unknown_fields: Counter[str] = field(default_factory=Counter)  # that clients sent and nobody read
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def count_unknown(self, names: Iterable[str]) -> None:
        """Fields that nobody reads. Clients choose the names, so that what is kept of them is bounded."""
        for name in names:
            fits = len(name) <= LONGEST_NAME and (name in self.unknown_fields or len(self.unknown_fields) < MOST_NAMES)
            self.unknown_fields[name if fits else OTHERS] += 1

    @contextmanager
    def place_of(self, user_id: str) -> Iterator[None]:
        """One more of this user's in flight until the block ends."""
        self.in_flight += 1
        self.in_flight_of[user_id] += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self.in_flight_of[user_id] -= 1

    def ring_learner(self) -> None:
        """There is something to judge. If nobody hears it, the learner looks by itself within a second."""
        ring(self.folder.learner_bell)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end, whatever becomes of the request that began it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for all kept work: called at shutdown, so that no turn is left half stored."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
