"""The store: one SQLite file that holds all that a daemon knows, and is every queue it has.

Each part of the store writes and reads one family of tables; a step that touches several is one method of the part that
leads it, and one transaction. Safe to use from several threads and several processes. Nothing in here knows the server
or the learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from clawd.store.cards import Cards
from clawd.store.connection import Connection, Row
from clawd.store.lifecycle import Lifecycle
from clawd.store.people import People
from clawd.store.progress import Progress
from clawd.store.sessions import Sessions
from clawd.store.signals import Signals
from clawd.store.story import Story
from clawd.store.turns import Turns
from clawd.store.updates import Updates
from clawd.store.verify import verify


class Store:
    """Open `path`, made if missing, brought to the newest schema.

    Raises:
        StoreError: the file is damaged, no database, or of a newer clawd.
    """

    def __init__(self, path: Path) -> None:
        self._connection = Connection(path)
        self.people = People(self._connection)
        self.sessions = Sessions(self._connection)
        self.turns = Turns(self._connection)
        self.signals = Signals(self._connection)
        self.updates = Updates(self._connection)
        self.cards = Cards(self._connection)
        self.progress = Progress(self._connection)
        self.story = Story(self._connection, self.turns, self.signals)
        self.lifecycle = Lifecycle(self._connection, self.updates)

    def transaction(self) -> AbstractContextManager[None]:
        """Keep all other writers out for a moment, those of other processes included."""
        return self._connection.transaction()

    def event(self, kind: str, subject: str | None = None, **detail: Any) -> None:
        """Note something that a person may want to look up later."""
        self._connection.event(kind, subject, **detail)

    def events(self, kind: str) -> list[Row]:
        """All events of a kind, oldest first."""
        return self._connection.rows("SELECT * FROM events WHERE kind = ? ORDER BY at, id", (kind,))

    def newest_event(self, kinds: Sequence[str], subject: str) -> Row | None:
        """The newest event about `subject` of one of `kinds`: of a begin and an end, it says which holds now."""
        marks = ", ".join("?" for _ in kinds)
        return self._connection.row(
            f"SELECT * FROM events WHERE kind IN ({marks}) AND subject = ? ORDER BY at DESC, rowid DESC LIMIT 1",
            (*kinds, subject),
        )

    def verify(self) -> list[str]:
        """What is wrong with the contents, a sentence each; empty: all is well."""
        return verify(self._connection)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
