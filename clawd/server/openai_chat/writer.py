"""An answer as `chat.completion` objects and chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from clawd.model.replies.deltas import CallArguments, CallBegins, Content, Delta, Reasoning, Reply
from clawd.model.vocab import Vocabulary
from clawd.server.answers import Answered, Writer
from clawd.server.engine.types import Finished, Token
from clawd.server.sse import DONE
from clawd.server.wire import Head, logprobs, new_call_id, usage


class ChatWriter(Writer):
    """`chat.completion` objects and chunks.

    The response's id names the first answer's turn. Of several answers each says its own, so that feedback can name it.
    """

    def __init__(self, head: Head, vocabulary: Vocabulary, turn_ids: Sequence[str], *, with_logprobs: bool) -> None:
        self._head = head
        self._turn_ids = turn_ids
        self._vocabulary = vocabulary
        self._with_logprobs = with_logprobs
        self._called: set[int] = set()  # answers that hold a call

    def begin(self) -> Iterable[bytes]:
        for index in range(len(self._turn_ids)):
            yield self._chunk(index, {"role": "assistant", "content": ""}, more=self._turn(index))

    def token(self, index: int, token: Token, deltas: list[Delta]) -> Iterable[bytes]:
        """Chunks for what one token said; its scores go with the first, or alone if it said nothing yet."""
        scores = self._scores([token])
        for place, delta in enumerate(deltas):
            yield self._delta(index, delta, None if place else scores)
        if scores and not deltas:
            yield self._chunk(index, {"content": ""}, scores=scores)

    def end(self, index: int, finished: Finished, deltas: list[Delta]) -> Iterable[bytes]:
        for delta in deltas:
            yield self._delta(index, delta, None)
        yield self._chunk(index, {}, reason=finish_reason(finished, index in self._called))

    def close(self, ends: Sequence[Finished]) -> Iterable[bytes]:
        if self._head.include_usage:
            yield self._head.chunk("chat.completion.chunk", [], usage=usage(ends))
        yield DONE

    def whole(self, answers: Sequence[Answered]) -> dict[str, Any]:
        choices = [self._choice(index, answer) for index, answer in enumerate(answers)]
        return self._head.of("chat.completion", choices, usage=usage([answer.finished for answer in answers]))

    def _choice(self, index: int, answer: Answered) -> dict[str, Any]:
        return {
            "index": index,
            "message": whole_message(answer.reply),
            "logprobs": self._scores(answer.tokens),
            "finish_reason": finish_reason(answer.finished, bool(answer.reply.calls)),
            **self._turn(index),
        }

    def _turn(self, index: int) -> dict[str, Any]:
        return {"turn_id": self._turn_ids[index]} if len(self._turn_ids) > 1 else {}

    def _scores(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        """The log-probabilities of tokens that have a text; None: not asked for, or there are none.

        The token that ends the answer is no part of its content. It is in the store.
        """
        if not self._with_logprobs:
            return None
        said = [token for token in tokens if not self._vocabulary.is_end(token.id)]
        return logprobs(said, self._vocabulary) if said else None

    def _delta(self, index: int, delta: Delta, scores: dict[str, Any] | None) -> bytes:
        if isinstance(delta, CallBegins):
            self._called.add(index)
        return self._chunk(index, message_delta(delta), scores=scores)

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        reason: str | None = None,
        scores: dict[str, Any] | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": scores, "finish_reason": reason, **more}
        return self._head.chunk("chat.completion.chunk", [choice])


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
