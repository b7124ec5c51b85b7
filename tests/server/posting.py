"""A client that posts as the server's chat route does, with made-up tokens: a real store, no model."""

from __future__ import annotations

from collections.abc import Sequence

from clawd.server.sessions.conversation import hash_with_response, request_hash
from clawd.server.sessions.place import Placement, place
from clawd.store import Store
from clawd.store.records import Message, NewTurn, Response, User


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


class Client:
    """Posts as the server's chat route does, with made-up tokens."""

    def __init__(self, store: Store, who: User | None = None, **headers: str) -> None:
        self.store = store
        self.who = who or store.people.named("default")
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.cache_key: str | None = None  # of every request

    def post(
        self,
        messages: list[Message],
        answer: str | None = "fine",
        *,
        cache_key: str | None = None,
        calls: Sequence[dict] = (),
        tools: list[dict] | None = None,
        alternative: bool = False,
    ) -> tuple[Placement, str]:
        """`answer` None: the client goes away and the turn is aborted."""
        digest = request_hash("clawd", messages, tools)
        placement = place(
            self.store,
            self.who.id,
            self.headers,
            messages,
            digest,
            prompt_cache_key=cache_key or self.cache_key,
            has_tools=bool(tools),
        )
        turn_id = self.store.turns.begin(
            NewTurn(
                session_id=placement.session.id,
                user_id=self.who.id,
                adapter_id=self.who.adapter.id,
                version_id=None,
                base_fingerprint="b",
                kind=placement.kind,
                kind_evidence=placement.kind_evidence,
                prompt_ids=(1, 2),
                messages=messages,
                request_hash=digest,
                previous_id=placement.previous.id if placement.previous else None,
            )
        )
        if placement.kind == "main":
            if placement.previous:
                self.store.turns.give_next_state(placement.previous.id, turn_id, placement.next_state)
            self.store.turns.supersede(placement.session.id, digest, turn_id)
        if answer is None:
            self.store.turns.abort(
                turn_id, Response((), (), "", "cancelled", hash_with_response(messages, "")), "aborted"
            )
        else:
            extended = hash_with_response(messages, answer, calls)
            self.store.turns.finish(turn_id, Response((5,), (-1.0,), answer, "stop", extended), alternative=alternative)
        return placement, turn_id

    def talk(self, *texts: str) -> list[tuple[Placement, str]]:
        """A conversation in which each text is answered, the history sent whole each time."""
        history: list[Message] = [{"role": "system", "content": "Be kind."}]
        turns = []
        for number, text in enumerate(texts):
            history = [*history, user(text)]
            turns.append(self.post(history, f"answer {number}"))
            history = [*history, assistant(f"answer {number}")]
        return turns
