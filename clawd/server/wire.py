"""What answers in OpenAI's shapes have in common: ids, usage, log-probabilities, the head of chunks and bodies."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clawd.model.vocab import Vocabulary
from clawd.server.engine.types import AdapterVersion, Finished, Token
from clawd.server.sse import sse

RESPONSE_PREFIXES = ("chatcmpl-", "cmpl-", "msg_", "resp_")
"""What the API families write before a turn's id to make a response's."""


def turn_of_response(response_id: str) -> str:
    """The turn that a response's id names."""
    for prefix in RESPONSE_PREFIXES:
        if response_id.startswith(prefix):
            return response_id.removeprefix(prefix)
    return response_id


def system_fingerprint(base_fingerprint: str, version: AdapterVersion | None) -> str:
    """Names the base and the adapter version that answer."""
    return f"{base_fingerprint[:12]}-{f'v{version.number}' if version else 'base'}"


def usage(ends: Sequence[Finished], per_prompt: int | None = None) -> dict[str, Any]:
    """Of all answers, `per_prompt` to each prompt (none: all are to one). A prompt is read once and counted once.

    `cached_tokens`: what was remembered of the prompts before their first answers.
    """
    firsts = ends[:: per_prompt or len(ends)]
    prompt = sum(finished.prompt_tokens for finished in firsts)
    response = sum(finished.response_tokens for finished in ends)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": response,
        "total_tokens": prompt + response,
        "prompt_tokens_details": {"cached_tokens": sum(finished.cached_tokens for finished in firsts)},
    }


def logprobs(tokens: Sequence[Token], vocabulary: Vocabulary) -> dict[str, Any]:
    """The `logprobs` object of a choice: one entry per token, over the full vocabulary at temperature 1."""
    return {"content": [_entry(token, vocabulary) for token in tokens], "refusal": None}


def _entry(token: Token, vocabulary: Vocabulary) -> dict[str, Any]:
    alternatives = [_named(other.id, other.logprob, vocabulary) for other in token.alternatives]
    return {**_named(token.id, token.logprob, vocabulary), "top_logprobs": alternatives}


def _named(token_id: int, logprob: float, vocabulary: Vocabulary) -> dict[str, Any]:
    raw = vocabulary.token_bytes(token_id)
    return {"token": raw.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(raw)}


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


@dataclass(frozen=True)
class Head:
    """What all chunks of one answer share."""

    id: str
    created: int
    model: str
    fingerprint: str
    include_usage: bool = False  # in a stream

    def of(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
            **more,
        }

    def chunk(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> bytes:
        null: dict[str, Any] = {"usage": None} if self.include_usage else {}  # in every chunk but the last
        return sse(self.of(kind, choices, **{**null, **more}))
