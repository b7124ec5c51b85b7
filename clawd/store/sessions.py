"""Sessions: conversations, who has them, and by which evidence."""

from __future__ import annotations

from dataclasses import replace

from clawd.errors import UnknownName
from clawd.store.codec import new_id, now
from clawd.store.connection import Connection, Row
from clawd.store.records import Session

NO_NEXT_STATE = "no next state"
CLOSED_AT_ONCE = 200
"""Idle sessions closed in one transaction: few transactions for thousands of them, and no long one."""


class Sessions:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def open(self, user_id: str, key: str | None, evidence: str) -> Session:
        """The user's open session of that key, or a new one. Without a key always a new one."""
        with self._connection.transaction():
            if key is not None and (found := self.with_key(user_id, key)):
                return found
            return self._new(user_id, key, evidence)

    def begin(self, user_id: str, key: str, evidence: str) -> Session:
        """A new session that is called `key` from now on; the open one that was goes on without a name.

        One that has no main-line turn yet has not begun: it is given as it is.
        """
        with self._connection.transaction():
            holder = self.with_key(user_id, key)
            if holder is not None:
                main = "SELECT 1 FROM turns WHERE session_id = ? AND kind = 'main' LIMIT 1"
                if self._connection.row(main, (holder.id,)) is None:
                    return holder
                self._connection.change("UPDATE sessions SET key = NULL WHERE id = ?", (holder.id,))
            return self._new(user_id, key, evidence)

    def _new(self, user_id: str, key: str | None, evidence: str) -> Session:
        session = Session(new_id(), user_id, key, evidence)
        with self._connection.transaction():
            self._connection.insert(
                "sessions",
                {
                    "id": session.id,
                    "user_id": user_id,
                    "key": key,
                    "evidence": evidence,
                    "state": "open",
                    "created_at": now(),
                    "last_seen_at": now(),
                },
            )
            return session

    def with_key(self, user_id: str, key: str) -> Session | None:
        """The user's open session that the client calls `key`."""
        row = self._connection.row(
            "SELECT * FROM sessions WHERE user_id = ? AND key = ? AND state = 'open'", (user_id, key)
        )
        return _session(row) if row else None

    def newest_of_id(self, user_id: str, key_id: str) -> Session | None:
        """The user's open session, last seen first, that the client calls `key_id` or `key_id:` and anything."""
        row = self._connection.row(
            "SELECT * FROM sessions WHERE user_id = ?1 AND state = 'open' AND key IS NOT NULL "
            "AND (key = ?2 OR (key >= ?2 || ':' AND key < ?2 || ';')) ORDER BY last_seen_at DESC, rowid DESC LIMIT 1",
            (user_id, key_id),
        )
        return _session(row) if row else None

    def named_anew(self, session: Session, key: str) -> Session:
        """The open session under the name that the client calls it by now, unless another open one has that."""
        with self._connection.transaction():
            if session.key == key or self.with_key(session.user_id, key):
                return session
            self._connection.change("UPDATE sessions SET key = ? WHERE id = ?", (key, session.id))
        return replace(session, key=key)

    def get(self, session_id: str) -> Session | None:
        row = self._connection.row("SELECT * FROM sessions WHERE id = ?", (session_id,))
        return _session(row) if row else None

    def all(self, user_id: str | None = None) -> list[Session]:
        """Every session, oldest first; of one user if named."""
        rows = self._connection.rows(
            "SELECT * FROM sessions WHERE ?1 IS NULL OR user_id = ?1 ORDER BY created_at, id", (user_id,)
        )
        return [_session(row) for row in rows]

    def reopen(self, session_id: str) -> Session:
        """A session whose conversation goes on; open already is fine. A name that another open one has is lost."""
        self._connection.change(
            "UPDATE sessions SET state = 'open', reason = NULL, closed_at = NULL, key = CASE WHEN EXISTS "
            "(SELECT 1 FROM sessions AS other WHERE other.user_id = sessions.user_id AND other.key = sessions.key AND "
            "other.state = 'open') THEN NULL ELSE key END WHERE id = ? AND state = 'closed'",
            (session_id,),
        )
        row = self._connection.row("SELECT * FROM sessions WHERE id = ?", (session_id,))
        if row is None:
            raise UnknownName(f"There is no session {session_id}.")
        return _session(row)

    def close(self, session_id: str, reason: str) -> None:
        """End a session: its turns that still wait for a next state won't get one. Closing twice is once."""
        with self._connection.transaction():
            self._connection.change(
                "UPDATE sessions SET state = 'closed', reason = ?, closed_at = ? WHERE id = ? AND state = 'open'",
                (reason, now(), session_id),
            )
            self._connection.change(
                "UPDATE turns SET state = 'discarded', reason = ? WHERE session_id = ? AND state = 'waiting'",
                (NO_NEXT_STATE, session_id),
            )

    def close_idle(self, idle_s: float) -> int:
        """Close sessions without a request for `idle_s` seconds and without a running one; how many."""
        idle = (
            "SELECT id FROM sessions WHERE state = 'open' AND last_seen_at < ?1 AND NOT EXISTS "
            "(SELECT 1 FROM turns WHERE turns.session_id = sessions.id AND turns.state = 'recorded') LIMIT ?2"
        )
        before = now() - idle_s
        closed = 0
        while ids := [row["id"] for row in self._connection.rows(idle, (before, CLOSED_AT_ONCE))]:
            with self._connection.transaction():
                for session_id in ids:
                    self.close(session_id, "idle")
            closed += len(ids)
        return closed

    def counts_by_evidence(self) -> dict[str, int]:
        rows = self._connection.rows("SELECT evidence, count(*) AS n FROM sessions GROUP BY evidence ORDER BY evidence")
        return {row["evidence"]: row["n"] for row in rows}


def _session(row: Row) -> Session:
    return Session(row["id"], row["user_id"], row["key"], row["evidence"])
