"""Turns, samples and updates made in one line each, through the store's own methods."""

from __future__ import annotations

from pathlib import Path

from clawd.store import Store
from clawd.store.records import NewTurn, Response, Reward, Session, User, Version, Vote

BASE = "b" * 64


class World:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.user: User = store.people.named("default")

    def session(self, key: str | None = None, user: User | None = None) -> Session:
        return self.store.sessions.open((user or self.user).id, key, "header" if key else "new")

    def begin(
        self,
        session: Session,
        *,
        messages: list[dict] | None = None,
        prompt: tuple[int, ...] = (1, 2, 3),
        kind: str = "main",
        request_hash: str = "r",
        user: User | None = None,
        base: str = BASE,
        tools: list | None = None,
        version: Version | None = None,
    ) -> str:
        who = user or self.user
        return self.store.turns.begin(
            NewTurn(
                session_id=session.id,
                user_id=who.id,
                adapter_id=who.adapter.id,
                version_id=version.id if version else None,
                base_fingerprint=base,
                kind=kind,
                kind_evidence="default",
                prompt_ids=prompt,
                request_hash=request_hash,
                tools=tools,
                messages=messages or [{"role": "user", "content": "hello"}],
            )
        )

    def answer(self, turn_id: str, ids: tuple[int, ...] = (7, 8), conversation_hash: str | None = "c") -> None:
        self.store.turns.finish(turn_id, Response(ids, tuple(-0.5 for _ in ids), "hi", "stop", conversation_hash))

    def turn(self, session: Session | None = None, **kwargs: object) -> str:
        turn_id = self.begin(session or self.session(), **kwargs)
        self.answer(turn_id)
        return turn_id

    def sample(self, reward: Reward | None = 1, hint: str | None = None, user: User | None = None) -> str:
        turn_id = self.turn(self.session(user=user), user=user)
        assert self.store.turns.give_next_state(turn_id, turn_id, [{"role": "user", "content": "thanks"}])
        return self.store.signals.settle(turn_id, [Vote("rules", reward, "thanks", hint)], reward)

    def staged(self, samples: int = 2) -> Version:
        for _ in range(samples):
            self.sample()
        update = self.store.updates.claim(self.user.adapter.id, BASE, samples, {})
        assert update is not None
        return self.store.updates.stage(update.id, Path("/nowhere"), "a" * 64, "b" * 64, {"loss": 1.0}, {})
