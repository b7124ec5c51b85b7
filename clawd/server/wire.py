"""The bytes of an answer: chunks, whole completions, log-probabilities, usage, in the OpenAI shape."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clawd.model.replies.deltas import CallArguments, CallBegins, Content, Delta, Reasoning, Reply
from clawd.model.vocab import Vocabulary
from clawd.server.engine.types import Finished, Token

DONE = b"data: [DONE]\n\n"
COMMENT = b": reading the prompt\n\n"


def sse(event: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def usage(finished: Finished) -> dict[str, Any]:
    return {
        "prompt_tokens": finished.prompt_tokens,
        "completion_tokens": finished.response_tokens,
        "total_tokens": finished.prompt_tokens + finished.response_tokens,
        "prompt_tokens_details": {"cached_tokens": finished.cached_tokens},
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


def message_delta(delta: Delta) -> dict[str, Any]:
    """The `delta` object of a chunk."""
    match delta:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallBegins(index, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": new_call_id(), "type": "function", "function": function}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def whole_message(reply: Reply) -> dict[str, Any]:
    """The `message` object of a whole completion."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content, "refusal": None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["content"] = reply.content or None
        message["tool_calls"] = [{"id": new_call_id(), **call} for call in reply.tool_calls()]
    return message


def finish_reason(finished: Finished, called: bool) -> str:
    """A cut answer says `length` even if it holds calls: the last of them may be cut, too."""
    return "tool_calls" if called and finished.reason == "stop" else finished.reason


@dataclass(frozen=True)
class ChatFrame:
    """What all chunks of one answer share."""

    id: str
    created: int
    model: str
    fingerprint: str
    include_usage: bool = False

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        event: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }
        if self.include_usage:
            event["usage"] = None  # the contract: null in every chunk but the last
        return sse({**event, **more})

    def delta(self, delta: dict[str, Any], reason: str | None = None, scores: dict[str, Any] | None = None) -> bytes:
        return self._chunk([{"index": 0, "delta": delta, "logprobs": scores, "finish_reason": reason}])

    def usage(self, finished: Finished) -> bytes:
        return self._chunk([], usage=usage(finished))

    def whole(self, reply: Reply, finished: Finished, scores: dict[str, Any] | None) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": whole_message(reply),
            "logprobs": scores,
            "finish_reason": finish_reason(finished, bool(reply.calls)),
        }
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": [choice],
            "usage": usage(finished),
        }
