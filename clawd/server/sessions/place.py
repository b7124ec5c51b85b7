"""Finds a request's session and the turn that it follows, best evidence first, and says which evidence it was."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawd.errors import NameRefused
from clawd.server.sessions.conversation import after_last_answer, after_turn, conversation_hashes, is_next_state
from clawd.store import Store
from clawd.store.records import Message, Session, TurnKind, TurnRef

SESSION_HEADER = "x-session-id"
TURN_TYPE_HEADER = "x-turn-type"
SESSION_DONE_HEADER = "x-session-done"

MAX_KEY_LENGTH = 256
RETRY_WINDOW_S = 15 * 60.0
"""An identical request is taken for a retry of an unanswered one only this long: clients give up sooner."""

TRUE = frozenset({"1", "true", "yes"})
KINDS: dict[str, TurnKind] = {"main": "main", "side": "side"}


@dataclass(frozen=True)
class Placement:
    session: Session
    kind: TurnKind
    kind_evidence: str
    is_last: bool  # the client says that the session ends with this turn
    previous: TurnRef | None  # none: nothing that this turn follows is known
    next_state: list[Message]  # of the previous turn; [] if it gets none


def place(
    store: Store, user_id: str, headers: Mapping[str, str], messages: Sequence[Message], digest: str
) -> Placement:
    """Place one request of a user. Opens a session where none fits.

    Raises:
        NameRefused: a session header that is empty, too long or has control characters, or an unknown turn type.
    """
    kind, kind_evidence = turn_kind(headers)
    hashes = conversation_hashes(messages)
    key = session_key(headers)
    continued = store.turns.continued_by(user_id, hashes[:-1])
    if key is not None:
        session = store.sessions.open(user_id, key, "header")
        if continued is not None and continued.session_id != session.id:
            continued = None  # the client says that it is another conversation
    elif continued is not None:
        session = store.sessions.reopen(continued.session_id)
    else:
        session = _of_retry(store, user_id, digest) or store.sessions.open(user_id, None, "conversation")
    previous, next_state = (continued, []) if kind == "side" else _follow(store, session, continued, messages, digest)
    return Placement(
        session=session,
        kind=kind,
        kind_evidence=kind_evidence,
        is_last=headers.get(SESSION_DONE_HEADER, "").strip().lower() in TRUE,
        previous=previous,
        next_state=next_state,
    )


def turn_kind(headers: Mapping[str, str]) -> tuple[TurnKind, str]:
    """The kind and where it is known from. Raises NameRefused for a type that doesn't exist."""
    said = headers.get(TURN_TYPE_HEADER)
    if said is None:
        return "main", "default"
    kind = KINDS.get(said.strip().lower())
    if kind is None:
        raise NameRefused(f"{TURN_TYPE_HEADER}: {said!r} is no turn type: send `main` or `side`.")
    return kind, "header"


def session_key(headers: Mapping[str, str]) -> str | None:
    """The client's own name of the session. Raises NameRefused if it can't be one."""
    key = headers.get(SESSION_HEADER)
    if key is None:
        return None
    key = key.strip()
    if not key or len(key) > MAX_KEY_LENGTH or not key.isprintable():
        raise NameRefused(f"{SESSION_HEADER} takes 1 to {MAX_KEY_LENGTH} printable characters.")
    return key


def _of_retry(store: Store, user_id: str, digest: str) -> Session | None:
    earlier = store.turns.same_request(user_id, digest, time.time() - RETRY_WINDOW_S)
    return store.sessions.reopen(earlier.session_id) if earlier else None


def _follow(
    store: Store, session: Session, continued: TurnRef | None, messages: Sequence[Message], digest: str
) -> tuple[TurnRef | None, list[Message]]:
    """The turn that this main-line request follows, and what it says about it."""
    if continued is not None:
        assert continued.conversation_hash is not None
        next_state = after_turn(messages, continued.conversation_hash)
        return continued, next_state if is_next_state(next_state) else []
    waiting = store.turns.newest_waiting(session.id)
    if waiting is None or waiting.request_hash == digest:
        return None, []  # the same request again is no reaction to its answer
    # A session known by its name, whose history the client has rewritten: the last answer is the one that was waiting.
    next_state = after_last_answer(messages)
    return waiting, next_state if is_next_state(next_state) else []
