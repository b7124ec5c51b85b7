"""The records that cross the engine's border. No model, no HTTP, no store in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Literal

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


@dataclass(frozen=True)
class TokenAlternative:
    id: int
    logprob: float


@dataclass(frozen=True)
class Token:
    """One sampled token, as sampled.

    `logprob` is over the full vocabulary at temperature 1, natural log, from the raw logits: penalties, top-p and the
    like shape only the choice. `text` is what may be shown now: a token that ends inside a UTF-8 character or might
    begin a stop string has text "" and its text comes with a later token or with `Finished.text`.
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
