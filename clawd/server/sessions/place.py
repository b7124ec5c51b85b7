"""Finds a request's session and the turn that it follows, best evidence first, and says which evidence it was."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawd.openclaw_text import SUBAGENT, said
from clawd.server.sessions.conversation import after_last_answer, after_turn, continued_hashes, text_of
from clawd.server.sessions.identity import RUNTIME, Clues, find_session, session_name
from clawd.server.sessions.kinds import runtime_line, turn_kind
from clawd.store import Store
from clawd.store.records import Message, Session, TurnKind, TurnRef

SESSION_DONE_HEADER = "x-session-done"

RETRY_WINDOW_S = 15 * 60.0
"""An identical request is taken for a retry of an unanswered one only this long: clients give up sooner."""

TRUE = frozenset({"1", "true", "yes"})


@dataclass(frozen=True)
class Placement:
    session: Session
    kind: TurnKind
    kind_evidence: str
    is_last: bool  # the client says that the session ends with this turn
    previous: TurnRef | None  # none: nothing that this turn follows is known
    next_state: list[Message]  # of the previous turn; [] if it gets none


def place(
    store: Store,
    user_id: str,
    headers: Mapping[str, str],
    messages: Sequence[Message],
    digest: str,
    *,
    prompt_cache_key: str | None = None,
    has_tools: bool = False,
) -> Placement:
    """Place one request of a user. Opens a session where none fits.

    Raises:
        NameRefused: a session header that is empty, too long or has control characters, or an unknown turn type.
    """
    kind, kind_evidence = turn_kind(headers, messages, has_tools=has_tools)
    named = session_name(headers, prompt_cache_key, messages)
    continued = store.turns.continued_by(user_id, continued_hashes(messages))
    if (named is None or named.evidence == RUNTIME) and _opens_subagent(messages):
        continued = None  # it may begin with its parent's history, and the Runtime line in that
        named = named if named is not None and ":subagent:" in (runtime_line(messages) or "") else None
    repeated = store.turns.same_request(user_id, digest, time.time() - RETRY_WINDOW_S)
    session = find_session(store, user_id, named, Clues(kind, continued, repeated, messages))
    if continued is not None and continued.session_id != session.id:
        continued = None  # the client says that it is another conversation
    previous, next_state = (continued, []) if kind == "side" else _follow(store, session, continued, messages, digest)
    return Placement(
        session=session,
        kind=kind,
        kind_evidence=kind_evidence,
        is_last=headers.get(SESSION_DONE_HEADER, "").strip().lower() in TRUE,
        previous=previous,
        next_state=next_state,
    )


def _opens_subagent(messages: Sequence[Message]) -> bool:
    """Whether the newest words in it set a sub-agent to work."""
    for message in reversed(messages):
        if message.get("role") == "assistant":
            return False
        if message.get("role") == "user" and (text := said(text_of(message.get("content")))):
            return text.startswith(SUBAGENT)
    return False


def _follow(
    store: Store, session: Session, continued: TurnRef | None, messages: Sequence[Message], digest: str
) -> tuple[TurnRef | None, list[Message]]:
    """The turn that this main-line request follows, and what it says about it."""
    if continued is not None:
        assert continued.conversation_hash is not None
        return continued, after_turn(messages, continued.conversation_hash)
    waiting = store.turns.newest_waiting(session.id)
    if waiting is None or waiting.request_hash == digest:
        return None, []  # the same request again is no reaction to its answer
    # A session known by its name, whose history the client has rewritten: the last answer is the one that was waiting.
    return waiting, after_last_answer(messages)
