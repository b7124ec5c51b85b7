"""An answer in the words of the Responses API: one response object, or the events of a stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from clawd.model.replies.deltas import Delta, Reasoning
from clawd.model.replies.parser import Parser
from clawd.server.answers import Answered, Writer
from clawd.server.engine.types import Finished, SamplingParams, Token
from clawd.server.errors import Fault
from clawd.server.openai_responses.items import Event, Items
from clawd.server.openai_responses.schema import ResponsesRequest
from clawd.server.sse import sse


class ResponseWriter(Writer):
    """`new_parser` reads an answer's text; `sampling`: as the engine was asked, defaults filled in."""

    def __init__(
        self, turn_id: str, asked: ResponsesRequest, sampling: SamplingParams, new_parser: Callable[[], Parser]
    ) -> None:
        self._head = _head(turn_id, asked, sampling)
        self._new_parser = new_parser
        self._items = Items(turn_id)
        self._sequence_number = 0
        self._reasoning_tokens = 0

    def begin(self) -> Iterable[bytes]:
        response = self._response("in_progress")
        yield from self._told(
            [{"type": f"response.{kind}", "response": response} for kind in ("created", "in_progress")]
        )

    def token(self, index: int, token: Token, deltas: list[Delta]) -> Iterable[bytes]:  # noqa: ARG002
        return self._told(self._take(deltas))

    def end(self, index: int, finished: Finished, deltas: list[Delta]) -> Iterable[bytes]:  # noqa: ARG002
        yield from self._told(self._take(deltas))
        status = _status(finished)
        yield from self._told(self._items.end(status))
        yield from self._told([{"type": f"response.{status}", "response": self._ended(finished)}])

    def close(self, ends: Sequence[Finished]) -> Iterable[bytes]:  # noqa: ARG002
        return ()

    def whole(self, answers: Sequence[Answered]) -> dict[str, Any]:
        (answer,) = answers
        parser = self._new_parser()
        for token in answer.tokens:
            self._take(parser.feed(token.text))
        self._take([*parser.feed(answer.finished.text), *parser.finish()])
        self._items.end(_status(answer.finished))
        return self._ended(answer.finished)

    def failed(self, fault: Fault) -> Iterable[bytes]:
        error = {"code": "server_error", "message": fault.message}
        yield from self._told([{"type": "response.failed", "response": self._response("failed", error=error)}])

    def _take(self, deltas: list[Delta]) -> list[Event]:
        """What one token says; its text counts as reasoning if any of it is."""
        self._reasoning_tokens += any(isinstance(delta, Reasoning) for delta in deltas)
        return [event for delta in deltas for event in self._items.add(delta)]

    def _ended(self, finished: Finished) -> dict[str, Any]:
        status = _status(finished)
        more: dict[str, Any] = {"completed_at": int(time.time())} if status == "completed" else {}
        if status == "incomplete":
            more["incomplete_details"] = {"reason": "max_output_tokens"}
        return self._response(status, usage=self._usage(finished), **more)

    def _response(self, status: str, **more: Any) -> dict[str, Any]:
        return {**self._head, "status": status, "output": self._items.output, **more}

    def _usage(self, finished: Finished) -> dict[str, Any]:
        return {
            "input_tokens": finished.prompt_tokens,
            "input_tokens_details": {"cached_tokens": finished.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": finished.response_tokens,
            "output_tokens_details": {"reasoning_tokens": self._reasoning_tokens},
            "total_tokens": finished.prompt_tokens + finished.response_tokens,
        }

    def _told(self, events: Iterable[Event]) -> Iterable[bytes]:
        for event in events:
            yield sse({**event, "sequence_number": self._sequence_number}, event["type"])
            self._sequence_number += 1


def _status(finished: Finished) -> str:
    return "incomplete" if finished.reason == "length" else "completed"


def _head(turn_id: str, asked: ResponsesRequest, sampling: SamplingParams) -> dict[str, Any]:
    """What a response says of its request: what was really done where that is not what was asked."""
    return {
        "id": f"resp_{turn_id}",
        "object": "response",
        "created_at": int(time.time()),
        "model": asked.model,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": asked.metadata or {},
        "output": [],
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": asked.reasoning.effort if asked.reasoning else None, "summary": None},
        "background": False,
        "store": False,
        "temperature": sampling.temperature,
        "text": {"format": (asked.text.format if asked.text else None) or {"type": "text"}},
        "tool_choice": asked.tool_choice or "auto",
        "tools": asked.tools or [],
        "top_p": sampling.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": asked.user,
    }
