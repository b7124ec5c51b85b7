"""One connection to the database, shared by the threads of a process.

Writes run in `BEGIN IMMEDIATE` transactions under a lock: SQLite's deferred ones can fail at their first write however
long one is willing to wait. Other processes are waited for (30 s), so that "database is locked" reaches nobody.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from clawd.errors import StoreError, TransitionRefused
from clawd.store.codec import new_id, now, pack_json
from clawd.store.schema import migrations

Row = dict[str, Any]
BUSY_TIMEOUT_S = 30.0


class Connection:
    """Raises StoreError where the file is no database, is damaged or was written by a newer clawd."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        try:
            raw = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
            raw.execute("PRAGMA foreign_keys = ON")
            raw.execute("PRAGMA journal_mode = WAL")
            raw.execute("PRAGMA synchronous = NORMAL")
            self.db = Database(raw, execute_plugins=False)
            path.chmod(0o600)
            self._migrate()
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{path} can't be used as clawd's database: {error}. Put it aside and restore a copy of it, "
                "or start with an empty one."
            ) from error

    def _migrate(self) -> None:
        known = {migration.name for migration in migrations._migrations}
        newer = [done.name for done in migrations.applied(self.db) if done.name not in known]
        if newer:
            raise StoreError(f"{self.path} was written by a newer clawd (it has {', '.join(newer)}): update clawd.")
        with self.transaction():  # two processes that open a fresh file at once: the second waits, then finds it done
            migrations.apply(self.db)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. A nested one belongs to the outer.

        Raises TransitionRefused where a row was not in the state that a step starts from.
        """
        with self._lock:
            if self.db.conn.in_transaction:
                yield
                return
            self.db.conn.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.conn.execute("COMMIT")
            except BaseException as error:
                self.db.conn.rollback()
                if isinstance(error, sqlite3.IntegrityError) and "transition refused" in str(error):
                    raise TransitionRefused(str(error)) from error
                raise

    def rows(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        with self._lock:
            cursor = self.db.conn.execute(sql, parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]

    def row(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Row | None:
        found = self.rows(sql, parameters)
        return found[0] if found else None

    def insert(self, table: str, values: Row) -> None:
        with self.transaction():
            self.db.table(table).insert(values)

    def change(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> int:
        """Run one writing statement; how many rows it changed."""
        with self.transaction():
            return self.db.conn.execute(sql, parameters).rowcount

    def step(self, table: str, row_id: str, before: Sequence[str], after: str, **columns: Any) -> None:
        """Move one row from one of the states `before` to `after`, setting further columns with it.

        Raises TransitionRefused if it is in none of them: somebody else was faster.
        """
        sets = ", ".join(f"{name} = ?" for name in ("state", *columns))
        marks = ", ".join("?" for _ in before)
        changed = self.change(
            f"UPDATE {table} SET {sets} WHERE id = ? AND state IN ({marks})",
            (after, *columns.values(), row_id, *before),
        )
        if changed != 1:
            raise TransitionRefused(f"{table} {row_id} is not in state {' or '.join(before)}, so it can't be {after}.")

    def event(self, kind: str, subject: str | None, **detail: Any) -> None:
        """Note something that a person may want to look up later."""
        self.insert(
            "events", {"id": new_id(), "at": now(), "kind": kind, "subject": subject, "detail": pack_json(detail)}
        )

    def close(self) -> None:
        with self._lock:
            self.db.close()
