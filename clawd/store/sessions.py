"""Sessions: conversations, who has them, and by which evidence."""

from __future__ import annotations

from clawd.errors import UnknownName
from clawd.store.codec import new_id, now
from clawd.store.connection import Connection, Row
from clawd.store.records import Session

NO_NEXT_STATE = "no next state"


class Sessions:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def open(self, user_id: str, key: str | None, evidence: str) -> Session:
        """The user's open session of that key, or a new one. Without a key always a new one."""
        with self._connection.transaction():
            if key is not None and (found := self.with_key(user_id, key)):
                return found
            session = Session(new_id(), user_id, key, evidence)
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
        """A session whose conversation goes on; open already is fine."""
        self._connection.change(
            "UPDATE sessions SET state = 'open', reason = NULL, closed_at = NULL WHERE id = ? AND state = 'closed'",
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
        idle = self._connection.rows(
            "SELECT id FROM sessions WHERE state = 'open' AND last_seen_at < ? AND NOT EXISTS "
            "(SELECT 1 FROM turns WHERE turns.session_id = sessions.id AND turns.state = 'recorded')",
            (now() - idle_s,),
        )
        for row in idle:
            self.close(row["id"], "idle")
        return len(idle)

    def counts_by_evidence(self) -> dict[str, int]:
        rows = self._connection.rows("SELECT evidence, count(*) AS n FROM sessions GROUP BY evidence ORDER BY evidence")
        return {row["evidence"]: row["n"] for row in rows}


def _session(row: Row) -> Session:
    return Session(row["id"], row["user_id"], row["key"], row["evidence"])
