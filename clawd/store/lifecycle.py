"""What happens to adapter versions beside training: which one serves, which stay, which came from elsewhere.

The server alone decides what serves while it runs: `ask` writes a wish down, the server loads the version, then
`grant` records it. Without a server, `choose` does it at once. A version's files go only after its row has said
`pruned`, and a row becomes that only while nothing needs it: whoever is stopped between the two leaves files that no
row claims, which are removed at the next look.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from clawd.errors import AdapterInUse, UnknownName
from clawd.store.codec import new_id, now, pack_json
from clawd.store.connection import Connection, Row
from clawd.store.records import Halt, Origin, Switch, Version
from clawd.store.updates import RESUMED, Updates, next_number

NEEDED = {
    "it serves now": "state IN ('active', 'staged')",
    "a request is being answered by it": (
        "EXISTS (SELECT 1 FROM turns WHERE turns.version_id = adapter_versions.id AND turns.state = 'recorded')"
    ),
    "an update starts from it": (
        "EXISTS (SELECT 1 FROM updates WHERE parent_version_id = adapter_versions.id "
        "AND updates.state IN ('running', 'staged'))"
    ),
    "it is about to serve": (
        "EXISTS (SELECT 1 FROM switches WHERE switches.version_id = adapter_versions.id AND switches.state = 'waiting')"
    ),
    "it is pinned (`clawd adapter unpin` changes that)": "pinned",
}
"""Why a version must stay, as conditions on its row."""

IS_PARENT_OF_ACTIVE = (
    "EXISTS (SELECT 1 FROM adapter_versions AS child WHERE child.parent_id = adapter_versions.id "
    "AND child.state = 'active')"
)


class Lifecycle:
    def __init__(self, connection: Connection, updates: Updates) -> None:
        self._connection = connection
        self._updates = updates

    # -- which version serves

    def ask(self, adapter_id: str, version_id: str | None, asked_by: str, why: str) -> Switch:
        """Wish that a version, or the bare base, serves the adapter's requests. It overtakes what was wished before.

        Raises UnknownName: the adapter has no such version that could.
        """
        switch_id = new_id()
        with self._connection.transaction():
            self._check_can_serve(adapter_id, version_id)
            self._overtake(adapter_id)
            self._connection.insert(
                "switches",
                {
                    "id": switch_id,
                    "adapter_id": adapter_id,
                    "version_id": version_id,
                    "asked_by": asked_by,
                    "why": why,
                    "state": "waiting",
                    "created_at": now(),
                },
            )
        return self.switch(switch_id)

    def _overtake(self, adapter_id: str) -> None:
        """A wish that a daemon left unanswered must not be granted after a later choice."""
        self._connection.change(
            "UPDATE switches SET state = 'refused', reason = ?, finished_at = ? "
            "WHERE adapter_id = ? AND state = 'waiting'",
            ("a later choice overtook it", now(), adapter_id),
        )

    def _check_can_serve(self, adapter_id: str, version_id: str | None) -> None:
        if version_id is None:
            return
        version = self._updates.version(version_id)
        if version.adapter_id != adapter_id or version.state not in ("active", "retired"):
            why = f": {version.reason}" if version.reason else ""
            raise UnknownName(f"Version {version.number} can't serve: it is {version.state}{why}.")

    def switch(self, switch_id: str) -> Switch:
        """Raises UnknownName."""
        row = self._connection.row("SELECT * FROM switches WHERE id = ?", (switch_id,))
        if row is None:
            raise UnknownName(f"There is no switch {switch_id}.")
        return _switch(row)

    def waiting_switches(self) -> list[Switch]:
        """What is wished for, oldest first."""
        rows = self._connection.rows("SELECT * FROM switches WHERE state = 'waiting' ORDER BY rowid")
        return [_switch(row) for row in rows]

    def grant(self, switch: Switch) -> None:
        """The wished-for version is loaded: it serves from now on.

        Raises TransitionRefused: it has been removed, or somebody was faster.
        """
        with self._connection.transaction():
            self._connection.step("switches", switch.id, ("waiting",), "done", finished_at=now())
            self.use(switch.adapter_id, switch.version_id)

    def refuse(self, switch: Switch, reason: str) -> None:
        """What serves goes on serving."""
        self._connection.step("switches", switch.id, ("waiting",), "refused", reason=reason, finished_at=now())

    def choose(self, adapter_id: str, version_id: str | None) -> None:
        """Record at once which version serves. Only while no server runs: it would not know.

        Raises UnknownName: the adapter has no such version that could.
        """
        with self._connection.transaction():
            self._overtake(adapter_id)
            self.use(adapter_id, version_id)

    def use(self, adapter_id: str, version_id: str | None) -> None:
        """Record which version serves. Only for the server, or within `choose`.

        What is staged goes on from another version and would undo this: its samples wait again.
        """
        with self._connection.transaction():
            self._check_can_serve(adapter_id, version_id)
            active = self._updates.active_version(adapter_id)
            if (active.id if active else None) == version_id:
                return
            if active is not None:
                self._connection.step("adapter_versions", active.id, ("active",), "retired", retired_at=now())
            if version_id is not None:
                self._connection.step("adapter_versions", version_id, ("retired",), "active", activated_at=now())
            for version in self._updates.staged_versions():
                if version.adapter_id == adapter_id:
                    self._updates.supersede(version.id)

    def before(self, version: Version) -> Version | None:
        """What a rollback from `version` leads to; None: the bare base.

        That is the version that it was trained from, or its nearest ancestor whose files are there. One that came from
        elsewhere has none here: then the newest older one.
        """
        line = self.line_of(version)[1:]
        if line or self._updates.get(version.update_id).origin == "training":
            return next((one for one in line if one.state == "retired"), None)
        older = [one for one in self._updates.versions(version.adapter_id) if one.number < version.number]
        return next((one for one in reversed(older) if one.state == "retired"), None)

    def line_of(self, version: Version) -> list[Version]:
        """A version, the one that it was trained from, and so on."""
        line = [version]
        while (parent_id := line[-1].parent_id) is not None:
            line.append(self._updates.version(parent_id))
        return line

    # -- which versions stay

    def pin(self, version_id: str, pinned: bool) -> None:
        """Keep a version whatever its age, or no longer. Raises UnknownName: its files are gone."""
        changed = self._connection.change(
            "UPDATE adapter_versions SET pinned = ? WHERE id = ? AND state IN ('active', 'retired')",
            (int(pinned), version_id),
        )
        if not changed:
            version = self._updates.version(version_id)
            raise UnknownName(f"Version {version.number} can't be pinned: it is {version.state}.")

    def prune(self, keep: int) -> list[Version]:
        """Give up all retired versions but the `keep` newest of each adapter and those that are needed; which."""
        needed = " OR ".join(f"({condition})" for condition in (*NEEDED.values(), IS_PARENT_OF_ACTIVE))
        with self._connection.transaction():
            rows = self._connection.rows(
                f"SELECT id FROM (SELECT *, row_number() OVER (PARTITION BY adapter_id ORDER BY number DESC) AS age, "
                f"({needed}) AS is_needed FROM adapter_versions WHERE state = 'retired' AND NOT pinned) "
                "WHERE age > ? AND NOT is_needed ORDER BY adapter_id, number",
                (keep,),
            )
            for row in rows:
                self._give_up(row["id"], f"older than the {keep} that are kept (learn.keep)")
        return [self._updates.version(row["id"]) for row in rows]

    def remove(self, version_id: str) -> None:
        """Give up one version by hand. Raises AdapterInUse: something needs it."""
        with self._connection.transaction():
            version = self._updates.version(version_id)
            reason = self.needed_for(version_id)
            if reason is not None:
                raise AdapterInUse(f"Version {version.number} can't be removed: {reason}.")
            self._give_up(version_id, "removed by hand")

    def needed_for(self, version_id: str) -> str | None:
        """Why a version must stay; None: nothing needs it."""
        for what, condition in NEEDED.items():
            if self._connection.row(f"SELECT 1 FROM adapter_versions WHERE id = ? AND ({condition})", (version_id,)):
                return what
        return None

    def _give_up(self, version_id: str, reason: str) -> None:
        self._connection.step("adapter_versions", version_id, ("retired",), "pruned", reason=reason)

    def claimed_folders(self) -> set[Path]:
        """Where the files of versions lie that are still wanted."""
        rows = self._connection.rows(
            "SELECT folder FROM adapter_versions JOIN adapters ON adapters.id = adapter_id "
            "WHERE state IN ('staged', 'active', 'retired') AND removed_at IS NULL"
        )
        return {Path(row["folder"]) for row in rows}

    # -- versions that weren't trained here

    def add(
        self,
        adapter_id: str,
        origin: Origin,
        told: dict[str, object],
        place: Callable[[str, int], tuple[Path, str, str]],
    ) -> Version:
        """A version that was imported or copied. It doesn't serve yet.

        `place` gets its id and number, puts its files into their final place, and says the folder, the GGUF's SHA-256
        and the base's fingerprint. That happens inside the transaction, so that nobody takes the folder for a leftover.
        `told`: where it comes from and its metrics, kept as those of an update.
        """
        connection = self._connection
        version_id = new_id()
        with connection.transaction():
            number = next_number(connection, adapter_id)
            folder, gguf_sha256, base_fingerprint = place(version_id, number)
            connection.insert(
                "updates",
                {
                    "id": version_id,
                    "adapter_id": adapter_id,
                    "number": number,
                    "state": "active",
                    "settings": pack_json({key: value for key, value in told.items() if key != "metrics"}),
                    "metrics": pack_json(told.get("metrics") or {}),
                    "started_at": now(),
                    "finished_at": now(),
                    "origin": origin,
                },
            )
            connection.insert(
                "adapter_versions",
                {
                    "id": version_id,
                    "adapter_id": adapter_id,
                    "number": number,
                    "update_id": version_id,
                    "state": "retired",
                    "folder": str(folder),
                    "gguf_sha256": gguf_sha256,
                    "base_fingerprint": base_fingerprint,
                    "staged_at": now(),
                    "retired_at": now(),
                },
            )
        return self._updates.version(version_id)

    # -- when an adapter learns

    def ask_update(self, adapter_id: str) -> None:
        """Let the adapter's next update begin with what waits, out of turn."""
        self._connection.change("UPDATE adapters SET update_asked_at = ? WHERE id = ?", (now(), adapter_id))

    def forget_asked(self, adapter_id: str) -> None:
        self._connection.change("UPDATE adapters SET update_asked_at = NULL WHERE id = ?", (adapter_id,))

    def is_update_asked(self, adapter_id: str) -> bool:
        return bool(
            self._connection.row("SELECT 1 FROM adapters WHERE id = ? AND update_asked_at IS NOT NULL", (adapter_id,))
        )

    def last_request_at(self) -> float | None:
        """When a person was last being answered; None: never. The judge's own requests to this server don't count."""
        row = self._connection.row(
            "SELECT max(CASE state WHEN 'recorded' THEN ? ELSE coalesce(finished_at, created_at) END) AS at FROM ("
            "SELECT * FROM (SELECT state, created_at, finished_at FROM turns WHERE kind = 'main' "
            "OR adapter_id IS NOT NULL ORDER BY rowid DESC LIMIT 50) UNION ALL "
            "SELECT state, created_at, finished_at FROM turns "
            "WHERE state = 'recorded' AND (kind = 'main' OR adapter_id IS NOT NULL))",
            (now(),),
        )
        return row["at"] if row else None

    def halt(self, adapter_id: str, reason: str) -> None:
        """No further update of the adapter until `resume`; its samples wait, its requests are served."""
        with self._connection.transaction():
            self._connection.change(
                "UPDATE adapters SET halted_at = ?, halted_reason = ? WHERE id = ? AND halted_at IS NULL",
                (now(), reason, adapter_id),
            )
            self._connection.event("adapter.halted", adapter_id, reason=reason)

    def resume(self, adapter_id: str) -> bool:
        """A person has looked: updates may go on, and the refusals before this count no more. Was it halted?"""
        with self._connection.transaction():
            changed = self._connection.change(
                "UPDATE adapters SET halted_at = NULL, halted_reason = NULL WHERE id = ? AND halted_at IS NOT NULL",
                (adapter_id,),
            )
            self._connection.event(RESUMED, adapter_id)
        return bool(changed)

    def halted(self, adapter_id: str) -> Halt | None:
        row = self._connection.row("SELECT halted_at, halted_reason FROM adapters WHERE id = ?", (adapter_id,))
        if row is None or row["halted_at"] is None:
            return None
        return Halt(row["halted_at"], row["halted_reason"])

    def hold_against(self, version_id: str, fault: str) -> None:
        """Note that a version is bad: a rollback passes it over."""
        self._connection.change("UPDATE adapter_versions SET fault = ? WHERE id = ?", (fault, version_id))


def _switch(row: Row) -> Switch:
    return Switch(
        row["id"], row["adapter_id"], row["version_id"], row["asked_by"], row["why"], row["state"], row["reason"]
    )
