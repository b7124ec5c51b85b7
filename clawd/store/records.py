"""What the store gives and takes: one frozen record per thing. `None` beside a field says what it means."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Message = dict[str, Any]
"""One message of a request, as the client sent it."""

TurnKind = Literal["main", "side"]
Reward = Literal[-1, 0, 1]

DEFAULT_USER = "default"


Origin = Literal["training", "import", "copy"]
"""How a version came to be."""


@dataclass(frozen=True)
class Adapter:
    id: str
    name: str


@dataclass(frozen=True)
class User:
    id: str
    name: str
    adapter: Adapter
    has_key: bool


@dataclass(frozen=True)
class Version:
    id: str
    adapter_id: str
    number: int
    state: str  # staged, active, retired, rejected, pruned
    folder: Path
    gguf_sha256: str
    base_fingerprint: str
    parent_id: str | None  # none: made from fresh weights
    update_id: str
    staged_at: float
    activated_at: float | None  # none: never served
    reason: str | None = None  # of a rejected or pruned one
    pinned: bool = False  # stays when others of its age go
    fault: str | None = None  # none: nothing is held against it
    doubt: str | None = None  # the gate's objection, if a person let it pass or still must
    needs_word: bool = False  # staged, but not the server's to load before a person has agreed


@dataclass(frozen=True)
class Switch:
    """A wish that another version serves an adapter's requests."""

    id: str
    adapter_id: str
    version_id: str | None  # none: the bare base
    asked_by: str  # `person` or `learner`
    why: str
    state: str  # waiting, done, refused
    reason: str | None  # of a refusal


@dataclass(frozen=True)
class Halt:
    """Why an adapter isn't updated any more until somebody has looked at it."""

    since: float
    reason: str


@dataclass(frozen=True)
class Session:
    id: str
    user_id: str
    key: str | None  # none: the client sent no name for it
    evidence: str


@dataclass(frozen=True)
class NewTurn:
    """What is known when a request has been accepted, before its first token."""

    session_id: str
    user_id: str
    adapter_id: str | None  # none: the bare base was asked for by name
    version_id: str | None  # none: the bare base answers
    base_fingerprint: str  # of the model file that is served
    kind: TurnKind
    kind_evidence: str
    prompt_ids: tuple[int, ...]
    messages: list[Message]
    request_hash: str
    parameters: dict[str, Any] = field(default_factory=dict)
    tools: list[Any] | None = None
    previous_id: str | None = None  # none: the first of its conversation


@dataclass(frozen=True)
class Response:
    """What a finished request brought. T tokens, the end token included if it was sampled."""

    ids: tuple[int, ...]  # (T,) as sampled
    logprobs: tuple[float, ...]  # (T,) full vocabulary, temperature 1
    text: str  # as the model wrote it, reasoning and calls included: the judge reads all that it did
    finish_reason: str
    conversation_hash: str | None  # that a continuation carries; none: nothing can extend it
    cached_tokens: int = 0
    first_token_at: float | None = None  # none: it had no token


@dataclass(frozen=True)
class Turn:
    """A stored turn, put together again: prompt and messages are whole."""

    id: str
    session_id: str
    user_id: str
    adapter_id: str | None
    version_id: str | None
    kind: TurnKind
    state: str
    reason: str | None
    previous_id: str | None
    prompt_ids: list[int]
    messages: list[Message]
    tools: list[Any] | None
    parameters: dict[str, Any]
    response_ids: list[int]  # empty while it runs
    logprobs: list[float]
    response_text: str
    finish_reason: str | None  # none while it runs
    next_state: list[Message] | None  # none: nothing has followed yet
    created_at: float
    first_token_at: float | None
    finished_at: float | None


@dataclass(frozen=True)
class TurnRef:
    """As much of a turn as the search for a session needs."""

    id: str
    session_id: str
    state: str
    reason: str | None
    request_hash: str
    conversation_hash: str | None  # none: unfinished, or nothing can extend it
    created_at: float


@dataclass(frozen=True)
class Vote:
    judge: str  # `feedback`, `rules` or `llm:<model>`
    score: Reward | None  # none: no vote, which is not 0
    reason: str
    hint: str | None = None  # none: the next state held no correction
    answer: str | None = None  # a judge model's own words


@dataclass(frozen=True)
class Hint:
    id: str
    text: str


@dataclass(frozen=True)
class CardLine:
    """One lasting rule of an adapter's preference card."""

    id: str
    text: str
    source: Literal["person", "hint"]
    created_at: float
    confirmed_at: float  # when it was said last


@dataclass(frozen=True)
class StoredSample:
    id: str
    turn_id: str
    adapter_id: str
    reward: Reward | None  # none: no score
    state: str
    failures: int


@dataclass(frozen=True)
class Update:
    id: str
    adapter_id: str
    number: int
    parent_version_id: str | None
    state: str
    reason: str | None
    started_at: float
    finished_at: float | None
    origin: Origin = "training"
