"""An answer in the words of the Messages API: one message, or the events of a stream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from clawd.model.replies.deltas import Delta
from clawd.model.replies.parser import Parser
from clawd.server.answers import Answered, Writer
from clawd.server.anthropic.blocks import Blocks, Event
from clawd.server.anthropic.errors import error_body
from clawd.server.engine.types import Finished, Token
from clawd.server.errors import Fault
from clawd.server.sse import sse

QUIET_TOKENS = 8
"""Tokens after which a ping says that a call's arguments, told when they are whole, are being written."""


class MessageWriter(Writer):
    """`new_parser` reads an answer's text; `eager_tools`: see `Blocks`."""

    sign_of_life = sse({"type": "ping"}, "ping")

    def __init__(
        self,
        name: str,
        model: str,
        prompt_tokens: int,
        new_parser: Callable[[], Parser],
        eager_tools: Collection[str] = (),
    ) -> None:
        self._name = name
        self._model = model
        self._prompt_tokens = prompt_tokens
        self._new_parser = new_parser
        self._blocks = Blocks(name, eager_tools)
        self._quiet = 0

    def begin(self) -> Iterable[bytes]:
        """How much of the prompt is remembered isn't known yet: the usage at the end says it."""
        usage = _usage(Finished("stop", prompt_tokens=self._prompt_tokens))
        yield from _told([{"type": "message_start", "message": self._message([], usage)}])

    def token(self, index: int, token: Token, deltas: list[Delta]) -> Iterable[bytes]:  # noqa: ARG002
        events = [event for delta in deltas for event in self._blocks.add(delta)]
        yield from _told(events)
        self._quiet = 0 if events else self._quiet + 1
        if self._quiet == QUIET_TOKENS:
            self._quiet = 0
            yield self.sign_of_life

    def end(self, index: int, finished: Finished, deltas: list[Delta]) -> Iterable[bytes]:  # noqa: ARG002
        yield from _told([event for delta in deltas for event in self._blocks.add(delta)])
        yield from _told(self._blocks.end())
        end = self._end(finished)
        yield from _told([{"type": "message_delta", "delta": end, "usage": _usage(finished)}, {"type": "message_stop"}])

    def close(self, ends: Sequence[Finished]) -> Iterable[bytes]:  # noqa: ARG002
        return ()

    def whole(self, answers: Sequence[Answered]) -> dict[str, Any]:
        (answer,) = answers
        parser = self._new_parser()
        for delta in [*parser.feed(answer.text), *parser.finish()]:
            self._blocks.add(delta)
        self._blocks.end()
        message = self._message(self._blocks.content, _usage(answer.finished))
        return {**message, **self._end(answer.finished)}

    def failure(self, fault: Fault) -> dict[str, Any]:
        return error_body(fault.status, fault.message, fault.cause)

    def failed(self, fault: Fault) -> Iterable[bytes]:
        yield from _told([self.failure(fault)])

    def _message(self, content: list[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self._name,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def _end(self, finished: Finished) -> dict[str, Any]:
        """A cut answer says so even if it holds calls: the last of them may be cut, too."""
        if finished.reason == "length":
            return {"stop_reason": "max_tokens", "stop_sequence": None}
        if self._blocks.called:
            return {"stop_reason": "tool_use", "stop_sequence": None}
        return {"stop_reason": "stop_sequence" if finished.stop else "end_turn", "stop_sequence": finished.stop}


def _usage(finished: Finished) -> dict[str, int]:
    """The API counts what was remembered apart from what was read."""
    return {
        "input_tokens": finished.prompt_tokens - finished.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": finished.cached_tokens,
        "output_tokens": finished.response_tokens,
    }


def _told(events: Iterable[Event]) -> Iterable[bytes]:
    for event in events:
        yield sse(event, event["type"])
