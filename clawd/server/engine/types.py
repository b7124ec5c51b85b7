"""The records that cross the engine's border. No model, no HTTP, no store in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from clawd.errors import ClawdError

FinishReason = Literal["stop", "length", "cancelled", "error"]


class Priority(IntEnum):
    """People first: background requests run in what is left and pause when someone talks."""

    INTERACTIVE = 0
    BACKGROUND = 1


@dataclass(frozen=True)
class AdapterVersion:
    """One immutable published adapter: what a sequence belongs to for life. `id` is the store's id of the version."""

    id: str
    adapter_id: str
    number: int
    gguf: Path


@dataclass(frozen=True)
class SamplingParams:
    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = 0  # 0: off
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None  # none: drawn from the system's entropy
    top_logprobs: int = 0  # alternatives reported per token
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, what is added to its logit)


class Matcher(Protocol):
    """What one answer may go on with, token by token."""

    def allowed(self) -> NDArray[np.bool_]:
        """(V,): the tokens that may come next, end tokens among them.

        Raises:
            ValueError: none may.
        """

    def advance(self, token: int) -> None:
        """`token` has been chosen."""


class Constraint(Protocol):
    """What an answer must look like. Made ahead, off the engine's thread; shared by requests."""

    def begin(self) -> Matcher:
        """For one answer, from its beginning. Cheap."""


@dataclass(frozen=True)
class GenerationRequest:
    id: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int  # 0: read the prompt only (warming)
    version: AdapterVersion | None = None  # none: the bare base model
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    shown_tokens: frozenset[int] = frozenset()  # control tokens whose text is part of the answer; others are hidden
    priority: Priority = Priority.INTERACTIVE
    owner: str | None = None  # with whom others take turns; none: nobody in particular
    constraint: Constraint | None = None  # none: the answer is free


@dataclass(frozen=True)
class TokenAlternative:
    id: int
    logprob: float


@dataclass(frozen=True)
class Token:
    """One sampled token, as sampled.

    `logprob` is over the full vocabulary at temperature 1, natural log, from the raw logits: penalties, top-p, a
    constraint and the like shape only the choice. `text` is what may be shown now: a token that ends inside a UTF-8
    character or might begin a stop string has text "" and its text comes with a later token or with `Finished.text`.
    """

    id: int
    logprob: float
    text: str
    alternatives: tuple[TokenAlternative, ...] = ()


@dataclass(frozen=True)
class Finished:
    """The last event of a request."""

    reason: FinishReason
    text: str = ""  # held-back text that turned out to belong to the answer
    error: str | None = None  # with reason "error": what happened, for a person
    cause: ClawdError | None = None  # with reason "error": what the client is told; none: the engine failed
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, taken from a remembered conversation
    response_tokens: int = 0
    stop: str | None = None  # the stop string that ended the answer; none: it ended in another way


Event = Token | Finished
Sink = Callable[[Event], None]
"""Called on the engine's thread for each event, in order; must return at once and never raise."""


@dataclass(frozen=True)
class EngineStats:
    running: int
    waiting: int
    paused: int  # background requests that stand back for people
    remembered: int
    cells_used: int
    cells_total: int
    versions_loaded: int
    prompt_tokens: int  # read since start
    response_tokens: int  # sampled since start
    cached_tokens: int  # prompt tokens that needn't be read, since start
    steps: int
    broken_off: int  # steps for background requests that were given up when a person came
    restored_tokens: int  # whose state was read from disk, since start
    saved_states: int  # conversations whose state lies on disk
