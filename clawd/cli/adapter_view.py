"""What `clawd adapter list` and `show` tell, as plain objects and as tables. All of it is read from the store."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clawd.store import Store
from clawd.store.records import Adapter, Version

KL_STEP = "effect/kl_old"
KL_BASE = "validate/trained_effect_kl"


def adapter_facts(store: Store, adapter: Adapter, base: str | None) -> dict[str, Any]:
    """`base`: fingerprint of the model that is served; None: unknown."""
    versions = store.updates.versions(adapter.id)
    active = next((version for version in versions if version.state == "active"), None)
    halt = store.lifecycle.halted(adapter.id)
    return {
        "name": adapter.name,
        "serves": active.number if active else None,
        "trouble": _foreign(active, base) if active else None,
        "users": [user.name for user in store.people.users_of(adapter)],
        "versions": len([version for version in versions if version.state in ("active", "retired")]),
        "samples": store.signals.counts(adapter.id),
        "halted": halt.reason if halt else None,
    }


def version_facts(store: Store, version: Version, base: str | None) -> dict[str, Any]:
    update = store.updates.get(version.update_id)
    metrics = store.updates.metrics(version.update_id)
    return {
        "number": version.number,
        "state": version.state,
        "reason": version.reason,
        "pinned": version.pinned,
        "fault": version.fault,
        "trouble": _foreign(version, base),
        "origin": update.origin,
        "made_at": version.staged_at,
        "parent": store.updates.version(version.parent_id).number if version.parent_id else None,
        "samples": len(store.signals.of_update(version.update_id)),
        "bytes": _size(version.folder),
        "kl_step": metrics.get(KL_STEP),
        "kl_base": metrics.get(KL_BASE),
        "metrics": metrics,
        "folder": str(version.folder),
        "base_fingerprint": version.base_fingerprint,
    }


def _foreign(version: Version, base: str | None) -> str | None:
    if base is None or version.base_fingerprint == base:
        return None
    return f"made for another base ({version.base_fingerprint[:12]}) than the one that is served ({base[:12]})"


def _size(folder: Path) -> int | None:
    """Bytes on disk; None: its files are gone."""
    if not folder.is_dir():
        return None
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def show_adapters(facts: list[dict[str, Any]], console: Console | None = None) -> None:
    table = Table("adapter", "serves", "versions", "users", "samples", "note")
    for one in facts:
        serves = f"v{one['serves']}" if one["serves"] else "the bare base"
        samples = ", ".join(f"{count} {state}" for state, count in one["samples"].items())
        note = "; ".join(filter(None, (one["trouble"], one["halted"] and f"halted: {one['halted']}")))
        table.add_row(*map(escape, (one["name"], serves, str(one["versions"]), ", ".join(one["users"]), samples, note)))
    (console or Console()).print(table)


def show_versions(facts: list[dict[str, Any]], console: Console | None = None) -> None:
    table = Table("version", "state", "made", "from", "samples", "KL step", "KL to base", "size", "note")
    for one in facts:
        note = "; ".join(filter(None, (one["reason"], one["fault"], one["trouble"])))
        cells = (
            f"v{one['number']}",
            one["state"] + (", pinned" if one["pinned"] else ""),
            datetime.fromtimestamp(one["made_at"]).astimezone().strftime("%Y-%m-%d %H:%M"),
            _from(one),
            str(one["samples"]),
            _figure(one["kl_step"]),
            _figure(one["kl_base"]),
            "gone" if one["bytes"] is None else f"{one['bytes'] / 2**20:.1f} MB",
            note,
        )
        table.add_row(*map(escape, cells))
    (console or Console()).print(table)


def _from(facts: dict[str, Any]) -> str:
    if facts["origin"] != "training":
        return str(facts["origin"])
    return f"v{facts['parent']}" if facts["parent"] else "fresh weights"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
