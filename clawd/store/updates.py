"""Updates and the adapter versions that they make.

Claiming samples and creating their update is one transaction; so are "stage this version", "activate this version, its
samples are used" and every way to fail. A process that dies between two leaves a state that can be gone on from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clawd.errors import Superseded, TransitionRefused, UnknownName
from clawd.store.codec import new_id, now, pack_json
from clawd.store.connection import Connection, Row
from clawd.store.records import Update, Version

BLOCKED, UNBLOCKED = "update.blocked", "update.unblocked"
"""Events about an adapter: the newer of the two says whether its updates are held up now, and why."""

RESUMED = "adapter.resumed"

SUPERSEDED = "another version was chosen meanwhile"


class Updates:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- writing

    def claim(self, adapter_id: str, base_fingerprint: str, count: int, settings: dict[str, Any]) -> Update | None:
        """Claim the adapter's `count` oldest waiting samples of this base for a new update; None if there are fewer.

        None also while another update of the adapter is running or staged: one at a time. Whoever asked for an update
        out of turn has it with this one.
        """
        connection = self._connection
        with connection.transaction():
            if connection.row(
                "SELECT 1 FROM updates WHERE adapter_id = ? AND state IN ('running', 'staged')", (adapter_id,)
            ):
                return None
            waiting = connection.rows(
                "SELECT samples.id FROM samples JOIN turns ON turns.id = samples.turn_id WHERE samples.adapter_id = ? "
                "AND samples.state = 'waiting' AND turns.base_fingerprint = ? ORDER BY samples.rowid LIMIT ?",
                (adapter_id, base_fingerprint, count),
            )
            if len(waiting) < count:
                return None
            active = self.active_version(adapter_id)
            update_id = new_id()
            connection.insert(
                "updates",
                {
                    "id": update_id,
                    "adapter_id": adapter_id,
                    "number": next_number(connection, adapter_id),
                    "parent_version_id": active.id if active else None,
                    "state": "running",
                    "settings": pack_json(settings),
                    "started_at": now(),
                },
            )
            connection.change("UPDATE adapters SET update_asked_at = NULL WHERE id = ?", (adapter_id,))
            for row in waiting:
                connection.step("samples", row["id"], ("waiting",), "claimed", update_id=update_id)
        return self.get(update_id)

    def stage(
        self,
        update_id: str,
        folder: Path,
        gguf_sha256: str,
        base_fingerprint: str,
        metrics: dict[str, float],
        left_out: Mapping[str, str],
        held_back: Sequence[str] = (),
        doubt: str | None = None,
        needs_word: bool = False,
    ) -> Version:
        """An update's result lies in its final folder: the server may load it. The version's id is the update's own.

        That update and version share an id makes publishing twice impossible. `left_out` says of samples, by id, why
        the update could not use them: they are quarantined, the others stay claimed until the version is active. Those
        of `held_back` weren't trained: they wait again. With `needs_word` the server loads nothing before `accept`.
        """
        update = self.get(update_id)
        with self._connection.transaction():
            self._connection.step("updates", update_id, ("running",), "staged", metrics=pack_json(metrics))
            for sample_id, reason in left_out.items():
                self._connection.step("samples", sample_id, ("claimed",), "quarantined", reason=reason)
            for sample_id in held_back:
                self._connection.step("samples", sample_id, ("claimed",), "waiting", update_id=None)
            self._connection.insert(
                "adapter_versions",
                {
                    "id": update_id,
                    "adapter_id": update.adapter_id,
                    "number": update.number,
                    "parent_id": update.parent_version_id,
                    "update_id": update_id,
                    "state": "staged",
                    "folder": str(folder),
                    "gguf_sha256": gguf_sha256,
                    "base_fingerprint": base_fingerprint,
                    "staged_at": now(),
                    "doubt": doubt,
                    "needs_word": int(needs_word),
                },
            )
        return self.version(update_id)

    def activate(self, version_id: str) -> None:
        """A staged version is loaded and takes over: the one before retires, the samples are used.

        Raises:
            Superseded: its parent serves no longer, so that it would undo what a person chose since.
        """
        connection = self._connection
        with connection.transaction():
            version = self.version(version_id)
            if version.state == "staged" and self.is_outdated(version.adapter_id, version.parent_id):
                raise Superseded(f"{SUPERSEDED}: version {version.number} goes on from one that no longer serves.")
            connection.change(
                "UPDATE adapter_versions SET state = 'retired', retired_at = ? "
                "WHERE adapter_id = ? AND state = 'active'",
                (now(), version.adapter_id),
            )
            connection.step("adapter_versions", version_id, ("staged",), "active", activated_at=now())
            connection.step("updates", version.update_id, ("staged",), "active", finished_at=now())
            connection.change(
                "UPDATE samples SET state = 'used', version_id = ? WHERE update_id = ? AND state = 'claimed'",
                (version_id, version.update_id),
            )

    def is_outdated(self, adapter_id: str, parent_id: str | None) -> bool:
        """Whether another version than `parent_id` serves the adapter by now."""
        active = self.active_version(adapter_id)
        return (active.id if active else None) != parent_id

    def accept(self, version_id: str) -> None:
        """A person lets a doubted version serve.

        Raises TransitionRefused: it doesn't wait for anybody's word.
        """
        if not self._connection.change(
            "UPDATE adapter_versions SET needs_word = 0 WHERE id = ? AND state = 'staged' AND needs_word", (version_id,)
        ):
            version = self.version(version_id)
            raise TransitionRefused(f"Version {version.number} is {version.state} and waits for nobody's word.")

    def supersede(self, version_id: str) -> None:
        """A staged version came too late: it is rejected, its samples wait again, as they are not at fault."""
        version = self.version(version_id)
        with self._connection.transaction():
            self._connection.step("adapter_versions", version_id, ("staged",), "rejected", reason=SUPERSEDED)
            self._connection.step(
                "updates", version.update_id, ("staged",), "refused", reason=SUPERSEDED, finished_at=now()
            )
            self._give_back(version.update_id)

    def _give_back(self, update_id: str) -> None:
        self._connection.change(
            "UPDATE samples SET state = 'waiting', update_id = NULL WHERE update_id = ? AND state = 'claimed'",
            (update_id,),
        )

    def reject(self, version_id: str, reason: str) -> None:
        """A staged version can't be served: what serves stays, its samples are quarantined."""
        version = self.version(version_id)
        with self._connection.transaction():
            self._connection.step("adapter_versions", version_id, ("staged",), "rejected", reason=reason)
            self._connection.step(
                "updates", version.update_id, ("staged",), "refused", reason=reason, finished_at=now()
            )
            self._quarantine_claimed(version.update_id, reason)

    def refuse(self, update_id: str, reason: str, metrics: dict[str, float]) -> None:
        """The result of a running update must not be served: its samples are quarantined."""
        with self._connection.transaction():
            self._connection.step(
                "updates",
                update_id,
                ("running",),
                "refused",
                reason=reason,
                metrics=pack_json(metrics),
                finished_at=now(),
            )
            self._quarantine_claimed(update_id, reason)

    def _quarantine_claimed(self, update_id: str, reason: str) -> None:
        self._connection.change(
            "UPDATE samples SET state = 'quarantined', reason = ? WHERE update_id = ? AND state = 'claimed'",
            (f"update refused: {reason}", update_id),
        )

    def fail(self, update_id: str, reason: str, attempts: int | None) -> None:
        """A running update could not be computed: its samples wait again.

        With `attempts`, this counts as one failure of each, and those with that many are quarantined; None: the update
        was interrupted, which is nobody's fault.
        """
        connection = self._connection
        with connection.transaction():
            connection.step("updates", update_id, ("running",), "failed", reason=reason, finished_at=now())
            if attempts is not None:
                connection.change("UPDATE samples SET failures = failures + 1 WHERE update_id = ?", (update_id,))
                connection.change(
                    "UPDATE samples SET state = 'quarantined', reason = ? "
                    "WHERE update_id = ? AND state = 'claimed' AND failures >= ?",
                    (f"part of {attempts} failed updates, last: {reason}", update_id, attempts),
                )
            self._give_back(update_id)

    # -- reading

    def get(self, update_id: str) -> Update:
        """Raises UnknownName."""
        row = self._connection.row("SELECT * FROM updates WHERE id = ?", (update_id,))
        if row is None:
            raise UnknownName(f"There is no update {update_id}.")
        return _update(row)

    def metrics(self, update_id: str) -> dict[str, float]:
        """What an ended update measured of itself; {} while it runs, or if it failed."""
        row = self._connection.row("SELECT metrics FROM updates WHERE id = ?", (update_id,))
        return json.loads(row["metrics"]) if row and row["metrics"] else {}

    def settings(self, update_id: str) -> dict[str, Any]:
        """With which it was made; of an imported or copied version, where it comes from."""
        row = self._connection.row("SELECT settings FROM updates WHERE id = ?", (update_id,))
        settings: dict[str, Any] = json.loads(row["settings"]) if row else {}
        return settings

    def running(self) -> list[Update]:
        return [_update(row) for row in self._connection.rows("SELECT * FROM updates WHERE state = 'running'")]

    def newest(self, adapter_id: str) -> Update | None:
        row = self._connection.row(
            "SELECT * FROM updates WHERE adapter_id = ? AND origin = 'training' ORDER BY rowid DESC LIMIT 1",
            (adapter_id,),
        )
        return _update(row) if row else None

    def since_resumed(self, adapter_id: str) -> list[Update]:
        """The adapter's trained updates since a person last looked at it (`Lifecycle.resume`), newest first."""
        rows = self._connection.rows(
            "SELECT * FROM updates WHERE adapter_id = ?1 AND origin = 'training' AND started_at > coalesce("
            "(SELECT max(at) FROM events WHERE kind = ?2 AND subject = ?1), 0) ORDER BY rowid DESC",
            (adapter_id, RESUMED),
        )
        return [_update(row) for row in rows]

    def version(self, version_id: str) -> Version:
        """Raises UnknownName."""
        row = self._connection.row("SELECT * FROM adapter_versions WHERE id = ?", (version_id,))
        if row is None:
            raise UnknownName(f"There is no adapter version {version_id}.")
        return to_version(row)

    def version_number(self, adapter_id: str, number: int) -> Version | None:
        row = self._connection.row(
            "SELECT * FROM adapter_versions WHERE adapter_id = ? AND number = ?", (adapter_id, number)
        )
        return to_version(row) if row else None

    def active_version(self, adapter_id: str) -> Version | None:
        """What answers the adapter's requests; None: the bare base."""
        row = self._connection.row(
            "SELECT * FROM adapter_versions WHERE adapter_id = ? AND state = 'active'", (adapter_id,)
        )
        return to_version(row) if row else None

    def to_load(self) -> list[Version]:
        """What the server may bring in, oldest first."""
        return [version for version in self.staged_versions() if not version.needs_word]

    def staged_versions(self) -> list[Version]:
        """What waits to be loaded, or for a person's word, oldest first."""
        rows = self._connection.rows("SELECT * FROM adapter_versions WHERE state = 'staged' ORDER BY staged_at, id")
        return [to_version(row) for row in rows]

    def versions(self, adapter_id: str) -> list[Version]:
        """All versions of an adapter, oldest first."""
        rows = self._connection.rows(
            "SELECT * FROM adapter_versions WHERE adapter_id = ? ORDER BY number", (adapter_id,)
        )
        return [to_version(row) for row in rows]


def next_number(connection: Connection, adapter_id: str) -> int:
    """Of the adapter's next version. One that a running update is about to make is taken already."""
    row = connection.row(
        "SELECT coalesce(max(number), 0) + 1 AS n FROM (SELECT number FROM adapter_versions WHERE adapter_id = ?1 "
        "UNION ALL SELECT number FROM updates WHERE adapter_id = ?1 AND state IN ('running', 'staged'))",
        (adapter_id,),
    )
    return int(row["n"]) if row else 1


def _update(row: Row) -> Update:
    return Update(
        id=row["id"],
        adapter_id=row["adapter_id"],
        number=row["number"],
        parent_version_id=row["parent_version_id"],
        state=row["state"],
        reason=row["reason"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        origin=row["origin"],
    )


def to_version(row: Row) -> Version:
    return Version(
        id=row["id"],
        adapter_id=row["adapter_id"],
        number=row["number"],
        state=row["state"],
        folder=Path(row["folder"]),
        gguf_sha256=row["gguf_sha256"],
        base_fingerprint=row["base_fingerprint"],
        parent_id=row["parent_id"],
        update_id=row["update_id"],
        staged_at=row["staged_at"],
        activated_at=row["activated_at"],
        reason=row["reason"],
        pinned=bool(row["pinned"]),
        fault=row["fault"],
        doubt=row["doubt"],
        needs_word=bool(row["needs_word"]),
    )
