"""Users, their keys, the adapters that learn from them, and who may use which.

A user's own adapter is what the model name `clawd` means for them. They may use, and so teach, further ones by name;
several users may share one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence

from clawd.errors import AdapterInUse, NameRefused, NotAllowed, UnknownName
from clawd.store.codec import new_id, now
from clawd.store.connection import Connection, Row
from clawd.store.records import DEFAULT_USER, Adapter, User

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KEY_PREFIX = "clawd-"

USERS = """
SELECT users.id, users.name, users.key_hash IS NOT NULL AS has_key, adapters.id AS adapter_id, adapters.name AS adapter
FROM users JOIN adapters ON adapters.id = users.adapter_id
"""


RENAMED = "adapter.renamed"

IN_USE = {
    "a version of it serves (`clawd adapter use NAME:base` ends that)": """
        SELECT 1 FROM adapter_versions WHERE adapter_id = ? AND state IN ('active', 'staged')""",
    "an update of it runs": "SELECT 1 FROM updates WHERE adapter_id = ? AND state IN ('running', 'staged')",
    "a request to it is being answered": "SELECT 1 FROM turns WHERE adapter_id = ? AND state = 'recorded'",
}


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

    def add(self, name: str, adapter: str | None = None) -> tuple[User, str]:
        """A new user and the key, which is told this once. `adapter`: their own; none: a new one of the user's name.

        Raises:
            NameRefused: the name is malformed or taken.
            UnknownName: there is no such adapter.
        """
        check_name(name)
        key = KEY_PREFIX + secrets.token_urlsafe(32)
        if not self._add(name, hash_key(key), adapter):
            raise NameRefused(f"There is a user {name!r} already.")
        return self.named(name), key

    def _add(self, name: str, key_hash: str | None, adapter: str | None = None) -> bool:
        connection = self._connection
        if connection.row("SELECT 1 FROM users WHERE name = ?", (name,)):
            return False
        with connection.transaction():
            if connection.row("SELECT 1 FROM users WHERE name = ?", (name,)):
                return False
            chosen = self.adapter(adapter) if adapter else self._new_adapter(name)
            user_id = new_id()
            connection.insert(
                "users",
                {"id": user_id, "name": name, "key_hash": key_hash, "adapter_id": chosen.id, "created_at": now()},
            )
            self._let_in(chosen.id, user_id)
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

    # -- adapters

    def adapter_named(self, name: str) -> Adapter | None:
        row = self._connection.row("SELECT id, name FROM adapters WHERE name = ? AND removed_at IS NULL", (name,))
        return Adapter(row["id"], row["name"]) if row else None

    def adapter(self, name: str) -> Adapter:
        """Raises UnknownName, which says its new name of one that was renamed."""
        found = self.adapter_named(name)
        if found is None:
            renamed = self.renamed_to(name)
            hint = f"it is called {renamed!r} now" if renamed else "`clawd adapter list` shows all"
            raise UnknownName(f"There is no adapter {name!r}: {hint}.")
        return found

    def renamed_to(self, name: str) -> str | None:
        """What the adapter that was last called `name` is called now; None: there was none, or it is gone."""
        row = self._connection.row(
            "SELECT adapters.name FROM events "
            "JOIN adapters ON adapters.id = json_extract(events.detail, '$.adapter_id') "
            "WHERE events.kind = ? AND events.subject = ? AND removed_at IS NULL ORDER BY events.rowid DESC LIMIT 1",
            (RENAMED, name),
        )
        return str(row["name"]) if row else None

    def adapters(self) -> list[Adapter]:
        rows = self._connection.rows("SELECT id, name FROM adapters WHERE removed_at IS NULL ORDER BY created_at, id")
        return [Adapter(row["id"], row["name"]) for row in rows]

    def create_adapter(self, name: str, users: Sequence[str] = ()) -> Adapter:
        """A new adapter that the named users may use.

        Raises:
            NameRefused: the name is malformed or taken.
            UnknownName: there is no such user.
        """
        with self._connection.transaction():
            made = self._new_adapter(name)
            for user in users:
                self._let_in(made.id, self.named(user).id)
        return made

    def _new_adapter(self, name: str) -> Adapter:
        self._check_free(name)
        made = Adapter(new_id(), name)
        self._connection.insert("adapters", {"id": made.id, "name": name, "created_at": now()})
        return made

    def _check_free(self, name: str) -> None:
        check_name(name)
        if self.adapter_named(name):
            raise NameRefused(f"There is an adapter {name!r} already: choose another name, or use that one.")

    def rename_adapter(self, adapter: Adapter, name: str) -> Adapter:
        """Raises NameRefused: malformed or taken."""
        with self._connection.transaction():
            self._check_free(name)
            self._connection.change("UPDATE adapters SET name = ? WHERE id = ?", (name, adapter.id))
            self._connection.event(RENAMED, adapter.name, to=name, adapter_id=adapter.id)
        return Adapter(adapter.id, name)

    def remove_adapter(self, adapter: Adapter) -> None:
        """Take an adapter away for good, and all its versions. What was said to it stays stored; its name is free.

        Raises:
            AdapterInUse: it is a user's own, a version of it serves, an update or a request of it runs.
        """
        connection = self._connection
        with connection.transaction():
            self.check_ownerless(adapter)
            for what, sql in IN_USE.items():
                if connection.row(sql, (adapter.id,)):
                    raise AdapterInUse(f"{adapter.name!r} can't be removed now: {what}.")
            reason = "its adapter was removed"
            for table, after, before in (
                ("adapter_versions", "pruned", "'retired'"),
                ("samples", "quarantined", "'waiting'"),
                ("turns", "discarded", "'waiting', 'judging'"),
            ):
                connection.change(
                    f"UPDATE {table} SET state = ?, reason = ? WHERE adapter_id = ? AND state IN ({before})",
                    (after, reason, adapter.id),
                )
            connection.change("DELETE FROM adapter_users WHERE adapter_id = ?", (adapter.id,))
            connection.change(
                "UPDATE adapters SET removed_at = ?, name = name || '~' || id WHERE id = ?", (now(), adapter.id)
            )
            connection.event("adapter.removed", adapter.name, adapter_id=adapter.id)

    def check_ownerless(self, adapter: Adapter) -> None:
        """Raises AdapterInUse: it is a user's own."""
        owners = ", ".join(user.name for user in self.all() if user.adapter.id == adapter.id)
        if owners:
            raise AdapterInUse(
                f"{adapter.name!r} is the own adapter of {owners}: give them another with `clawd user set NAME "
                "--adapter OTHER` first."
            )

    # -- who may use which

    def may_use(self, user: User, adapter: Adapter) -> bool:
        return bool(
            self._connection.row(
                "SELECT 1 FROM adapter_users WHERE adapter_id = ? AND user_id = ?", (adapter.id, user.id)
            )
        )

    def adapters_of(self, user: User) -> list[Adapter]:
        """What the user may use, their own first."""
        rows = self._connection.rows(
            "SELECT adapters.id, name FROM adapters JOIN adapter_users ON adapter_id = adapters.id WHERE user_id = ? "
            "ORDER BY adapters.id <> ?, created_at, adapters.id",
            (user.id, user.adapter.id),
        )
        return [Adapter(row["id"], row["name"]) for row in rows]

    def users_of(self, adapter: Adapter) -> list[User]:
        return [
            _user(row)
            for row in self._connection.rows(
                USERS + "JOIN adapter_users ON adapter_users.user_id = users.id WHERE adapter_users.adapter_id = ? "
                "ORDER BY users.created_at, users.id",
                (adapter.id,),
            )
        ]

    def share(self, adapter: Adapter, user: User) -> None:
        """From now on the user may ask for the adapter by its name, and teaches it by that."""
        with self._connection.transaction():
            self._let_in(adapter.id, user.id)

    def _let_in(self, adapter_id: str, user_id: str) -> None:
        self._connection.change(
            "INSERT OR IGNORE INTO adapter_users (adapter_id, user_id, since) VALUES (?, ?, ?)",
            (adapter_id, user_id, now()),
        )

    def unshare(self, adapter: Adapter, user: User) -> None:
        """Raises NotAllowed: it is the user's own adapter."""
        with self._connection.transaction():
            if self.named(user.name).adapter.id == adapter.id:
                raise NotAllowed(
                    f"{adapter.name!r} is {user.name}'s own adapter: give them another with `clawd user set` first."
                )
            self._connection.change(
                "DELETE FROM adapter_users WHERE adapter_id = ? AND user_id = ?", (adapter.id, user.id)
            )

    def set_adapter(self, user: User, adapter: Adapter) -> User:
        """Make `adapter` the user's own. They may go on using the one before by its name."""
        with self._connection.transaction():
            self._let_in(adapter.id, user.id)
            self._connection.change("UPDATE users SET adapter_id = ? WHERE id = ?", (adapter.id, user.id))
        return self.named(user.name)


def _user(row: Row) -> User:
    return User(row["id"], row["name"], Adapter(row["adapter_id"], row["adapter"]), bool(row["has_key"]))
