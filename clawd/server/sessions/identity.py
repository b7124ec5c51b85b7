"""Which session a request belongs to, best evidence first.

1. `X-Session-Id`: the client's word, whatever else there is.
2. The affinity headers that OpenClaw and others send, then `prompt_cache_key`, then OpenClaw's Runtime line.
3. The conversation: a request that extends a stored turn's.
4. The same request again, soon.

The names of the second group are given for other purposes: an application may send one `prompt_cache_key` with all its
conversations, and OpenClaw keeps its id over a reset. So the conversation has a say beside them:

* A request that goes on from a stored turn belongs to that turn's session, unless that session goes by another name:
  then it is a fork, a sub-agent's for example, and a session of its own.
* A request in which nothing has been answered yet begins a new session, which takes the name over; the one before goes
  on without it, known by its conversation.
* `<id>:<n>` are the generations of one id. A higher n over a compacted history is the same session; over a new
  conversation it is a reset, and another session. A compaction's own request names the bare id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawd.errors import NameRefused
from clawd.server.sessions.conversation import begins_anew, is_compacted
from clawd.server.sessions.kinds import runtime_line
from clawd.store import Store
from clawd.store.records import Message, Session, TurnKind, TurnRef

SESSION_HEADER = "x-session-id"
AFFINITY_HEADERS = ("x-session-affinity", "session_id")
REQUEST_ID_HEADER = "x-client-request-id"
MAX_KEY_LENGTH = 256

HEADER, AFFINITY, CACHE_KEY, RUNTIME, CONVERSATION = (
    "header",
    "affinity header",
    "prompt_cache_key",
    "runtime line",
    "conversation",
)

_GENERATION = re.compile(r"(?P<id>.+):\d{1,9}")
_RUNTIME_NAMES = (re.compile(r"\bsessionId=([^|\s]+)"), re.compile(r"\bsession=([^|\s]+)"))


@dataclass(frozen=True)
class Named:
    """A session as the client calls it."""

    key: str
    evidence: str

    @property
    def id(self) -> str:
        return id_of(self.key)


def id_of(key: str) -> str:
    """A name without its generation."""
    generation = _GENERATION.fullmatch(key)
    return generation["id"] if generation else key


def session_name(headers: Mapping[str, str], prompt_cache_key: str | None, messages: Sequence[Message]) -> Named | None:
    """The best name that the request gives its session; None: none.

    Raises NameRefused for an `X-Session-Id` that can't be one. Other names that can't are passed over.
    """
    told = headers.get(SESSION_HEADER)
    if told is not None:
        if not _can_be_name(told):
            raise NameRefused(f"{SESSION_HEADER} takes 1 to {MAX_KEY_LENGTH} printable characters.")
        return Named(told.strip(), HEADER)
    found = (
        *((headers.get(name), AFFINITY) for name in AFFINITY_HEADERS),
        (_generation_only(headers.get(REQUEST_ID_HEADER)), AFFINITY),
        (prompt_cache_key, CACHE_KEY),
        (_runtime_name(messages), RUNTIME),
    )
    return next((Named(key.strip(), evidence) for key, evidence in found if key and _can_be_name(key)), None)


def _can_be_name(key: str) -> bool:
    key = key.strip()
    return 0 < len(key) <= MAX_KEY_LENGTH and key.isprintable()


def _generation_only(request_id: str | None) -> str | None:
    """Most clients number their requests in this header; OpenClaw names the session there, as `<id>:<n>`."""
    return request_id if request_id and _GENERATION.fullmatch(request_id.strip()) else None


def _runtime_name(messages: Sequence[Message]) -> str | None:
    line = runtime_line(messages)
    found = (pattern.search(line) for pattern in _RUNTIME_NAMES) if line else ()
    return next((match[1] for match in found if match), None)


@dataclass(frozen=True)
class Clues:
    """What else a request tells of its session."""

    kind: TurnKind
    continued: TurnRef | None  # the stored turn that it extends
    repeated: TurnRef | None  # the same request, shortly before
    messages: Sequence[Message]


def find_session(store: Store, user_id: str, named: Named | None, clues: Clues) -> Session:
    """The request's session, opened or reopened."""
    if named is None:
        before = clues.continued or clues.repeated
        return store.sessions.reopen(before.session_id) if before else store.sessions.open(user_id, None, CONVERSATION)
    origin = store.sessions.get(clues.continued.session_id) if clues.continued else None
    if named.evidence == HEADER:
        if origin is not None and origin.key == named.key and store.sessions.with_key(user_id, named.key) is None:
            return store.sessions.reopen(origin.id)
        return store.sessions.open(user_id, named.key, HEADER)
    if origin is not None and (origin.key is None or id_of(origin.key) == named.id):
        return _under(store, store.sessions.reopen(origin.id), named.key)
    return _by_name(store, user_id, named, clues)


def _by_name(store: Store, user_id: str, named: Named, clues: Clues) -> Session:
    sessions, is_side = store.sessions, clues.kind == "side"
    holder = sessions.with_key(user_id, named.key)
    if holder is None and (is_side or is_compacted(clues.messages)):
        holder = sessions.newest_of_id(user_id, named.id)
    if holder is None:
        return sessions.begin(user_id, named.key, named.evidence)
    if is_side:
        return holder
    is_repeated = clues.repeated is not None and clues.repeated.session_id == holder.id
    if is_repeated or not begins_anew(clues.messages):
        return _under(store, holder, named.key)
    return sessions.begin(user_id, named.key, named.evidence)


def _under(store: Store, session: Session, key: str) -> Session:
    """The session under the name that the client uses now. One that was named in so many words keeps that name:

    the next request that names it so is to find it.
    """
    return session if session.evidence == HEADER else store.sessions.named_anew(session, key)
