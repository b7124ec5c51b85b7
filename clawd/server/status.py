"""What `GET /clawd/v1/status` tells: every figure from the store or the engine, none kept on the side."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from clawd import __version__
from clawd.judge_note import judge_note
from clawd.server.services import Services
from clawd.store.records import DEFAULT_USER, Adapter, User
from clawd.store.updates import BLOCKED, UNBLOCKED


def status(services: Services, user: User) -> dict[str, Any]:
    """One JSON object; `clawd status` prints it.

    The machine's owner, who is `default`, is told of everybody; others of the adapters that they may use, no more.
    """
    store = services.store
    is_owner = user.name == DEFAULT_USER
    adapters = store.people.adapters() if is_owner else store.people.adapters_of(user)
    learn = services.settings.learn
    context = services.engine.context
    return {
        "version": __version__,
        "ready": services.engine.alive,
        "model": {
            "name": services.versions.base_name,
            "path": str(services.model_path) if is_owner else services.model_path.name,
            "embedded": services.model_is_embedded,
            "fingerprint": services.versions.base_fingerprint,
            "context_tokens": context,
            "answer_tokens": min(services.settings.server.default_max_tokens or context, context),
            "reply_format": services.replies.name,
        },
        "binding_note": services.binding_note,
        "engine": asdict(services.engine.stats()),
        "judge": {
            "kind": services.settings.judge.kind,
            "note": judge_note(services.settings, services.model_is_embedded),
        },
        "learning": {"enabled": learn.enabled, "samples_per_update": learn.samples_per_update},
        "sessions": {"by_evidence": store.sessions.counts_by_evidence()},
        "turns": {"main": store.turns.counts(), "side": store.turns.count_side()},
        "adapters": [_adapter(services, adapter) for adapter in adapters],
        "ignored_fields": dict(services.unknown_fields),
    }


def _adapter(services: Services, adapter: Adapter) -> dict[str, Any]:
    store = services.store
    version = services.versions.active(adapter.id)
    newest = store.updates.newest(adapter.id)
    scored, not_scored = store.turns.scores(adapter.id)
    return {
        "name": adapter.name,
        "users": [user.name for user in store.people.users_of(adapter)],
        "active_version": version.number if version else None,
        "versions": len(store.updates.versions(adapter.id)),
        "samples": store.signals.counts(adapter.id),
        "samples_needed": services.settings.learn.samples_per_update,
        "samples_waiting": store.signals.waiting(adapter.id, services.versions.base_fingerprint),
        "turns": store.turns.counts(adapter.id),
        "scored": scored,
        "not_scored": not_scored,
        "last_update": {"number": newest.number, "state": newest.state, "reason": newest.reason} if newest else None,
        "waits_for": _waits_for(services, adapter),
    }


def _waits_for(services: Services, adapter: Adapter) -> str:
    """The one thing that stands between this adapter and its next version."""
    held_up = _held_up(services, adapter)
    if held_up is not None:
        return held_up
    learn = services.settings.learn
    missing = learn.samples_per_update - services.store.signals.waiting(adapter.id, services.versions.base_fingerprint)
    return f"{missing} more judged turns with a signal" if missing > 0 else "the learner's next look"


def _held_up(services: Services, adapter: Adapter) -> str | None:
    """What stands against an update beside a want of samples; None: nothing."""
    store = services.store
    if not services.settings.learn.enabled:
        return "learning is switched off (learn.enabled)"
    if adapter.id in services.versions.unusable:
        return services.versions.unusable[adapter.id]
    newest = store.updates.newest(adapter.id)
    if newest is not None and newest.state in ("running", "staged"):
        waiting = next((one for one in store.updates.staged_versions() if one.id == newest.id and one.needs_word), None)
        if waiting is not None:
            return f"your word, `clawd adapter accept {adapter.name}` or `refuse`: {waiting.doubt}"
        doing = "update {} is being trained" if newest.state == "running" else "version {} is being loaded"
        return doing.format(newest.number)
    halt = store.lifecycle.halted(adapter.id)
    if halt is not None:
        return f"a look at it, then `clawd adapter resume {adapter.name}`: {halt.reason}"
    told = store.newest_event((BLOCKED, UNBLOCKED), adapter.id)
    return str(json.loads(told["detail"])["reason"]) if told is not None and told["kind"] == BLOCKED else None
