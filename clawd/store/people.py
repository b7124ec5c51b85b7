"""Users, their keys, and the adapters that learn from them."""

from __future__ import annotations

import hashlib
import re
import secrets

from clawd.errors import NameRefused, UnknownName
from clawd.store.codec import new_id, now
from clawd.store.connection import Connection, Row
from clawd.store.records import DEFAULT_USER, Adapter, User

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KEY_PREFIX = "clawd-"

USERS = """
SELECT users.id, users.name, users.key_hash IS NOT NULL AS has_key, adapters.id AS adapter_id, adapters.name AS adapter
FROM users JOIN adapters ON adapters.id = users.adapter_id
"""


def check_name(name: str) -> str:
    """A name that is safe in a path, a URL and a model name.

    Raises NameRefused otherwise.
    """
    if not NAME.fullmatch(name):
        shown = name if len(name) <= 40 else name[:40] + "…"
        raise NameRefused(
            f"{shown!r} can't be a name: take 1 to 64 of A-Z a-z 0-9 . _ - with a letter or digit in front."
        )
    return name


def hash_key(key: str) -> str:
    """Keys have 256 random bits, so a plain digest can't be searched; salting would forbid the index."""
    return hashlib.sha256(key.encode()).hexdigest()


class People:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._add(DEFAULT_USER, None)

    def add(self, name: str) -> tuple[User, str]:
        """A new user with an adapter of the same name, and the key, which is told this once.

        Raises NameRefused if the name is malformed or taken.
        """
        check_name(name)
        key = KEY_PREFIX + secrets.token_urlsafe(32)
        if not self._add(name, hash_key(key)):
            raise NameRefused(f"There is a user {name!r} already.")
        return self.named(name), key

    def _add(self, name: str, key_hash: str | None) -> bool:
        connection = self._connection
        if connection.row("SELECT 1 FROM users WHERE name = ?", (name,)):
            return False
        with connection.transaction():
            if connection.row("SELECT 1 FROM users WHERE name = ?", (name,)):
                return False
            adapter_id = new_id()
            connection.insert("adapters", {"id": adapter_id, "name": name, "created_at": now()})
            connection.insert(
                "users",
                {"id": new_id(), "name": name, "key_hash": key_hash, "adapter_id": adapter_id, "created_at": now()},
            )
        return True

    def named(self, name: str) -> User:
        """Raises UnknownName."""
        row = self._connection.row(USERS + "WHERE users.name = ?", (name,))
        if row is None:
            raise UnknownName(f"There is no user {name!r}: `clawd user list` shows all.")
        return _user(row)

    def with_key(self, key: str) -> User | None:
        """Whose key this is; None: nobody's."""
        row = self._connection.row(USERS + "WHERE users.key_hash = ?", (hash_key(key),))
        return _user(row) if row else None

    def all(self) -> list[User]:
        return [_user(row) for row in self._connection.rows(USERS + "ORDER BY users.created_at, users.id")]

    def adapter_named(self, name: str) -> Adapter | None:
        row = self._connection.row("SELECT id, name FROM adapters WHERE name = ?", (name,))
        return Adapter(row["id"], row["name"]) if row else None

    def adapters(self) -> list[Adapter]:
        rows = self._connection.rows("SELECT id, name FROM adapters ORDER BY created_at, id")
        return [Adapter(row["id"], row["name"]) for row in rows]


def _user(row: Row) -> User:
    return User(row["id"], row["name"], Adapter(row["adapter_id"], row["adapter"]), bool(row["has_key"]))
