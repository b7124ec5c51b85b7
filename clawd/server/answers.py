"""ASGI responses that notice at once when the client goes away, streaming or not, in any API family's words.

Starlette's own streaming response learns of it only at its next send, which may be a long prompt later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from clawd.model.replies.deltas import Delta, Reply
from clawd.server.engine.types import Finished, Token
from clawd.server.errors import Fault, body, of_finished
from clawd.server.exchange import Exchange
from clawd.server.exchanges import Exchanges
from clawd.server.sse import COMMENT, HEADERS, sse

COMMENT_EVERY_S = 5.0
"""A sign of life at least this often while there is nothing to send: clients and proxies give up on silent streams."""

FAILURES = ("error", "cancelled")


@dataclass(frozen=True)
class Answered:
    """One whole answer."""

    tokens: Sequence[Token]
    text: str  # as the model wrote it
    reply: Reply
    finished: Finished


class Writer(ABC):
    """Words one HTTP answer as an API family does. `index`: which of its answers, counted from 0.

    A stream is `begin`, then per answer `token` as often as there are some and one `end`, and `close` when all have
    ended; or it breaks off with `failed`. What isn't streamed is `whole`, or `failure` with its status.
    """

    sign_of_life: bytes = COMMENT

    @abstractmethod
    def begin(self) -> Iterable[bytes]:
        """Sent at once, before anything is read."""

    @abstractmethod
    def token(self, index: int, token: Token, deltas: list[Delta]) -> Iterable[bytes]:
        """`deltas`: what the token's text says; often nothing."""

    @abstractmethod
    def end(self, index: int, finished: Finished, deltas: list[Delta]) -> Iterable[bytes]:
        """`deltas`: what was held back until it was clear that no more comes."""

    @abstractmethod
    def close(self, ends: Sequence[Finished]) -> Iterable[bytes]:
        """`ends`: one per answer, in order."""

    @abstractmethod
    def whole(self, answers: Sequence[Answered]) -> dict[str, Any]:
        """The body of an answer that isn't streamed."""

    def failure(self, fault: Fault) -> dict[str, Any]:
        """The error body when a request fails after it was accepted."""
        return body(fault.status, fault.message, fault.code)

    def failed(self, fault: Fault) -> Iterable[bytes]:
        """The same in a stream, its last event."""
        yield sse(self.failure(fault))


class Answer(Response):
    """Answers one request, and cancels its exchanges if the client goes before the end."""

    def __init__(self, exchanges: Exchanges, writer: Writer, *, stream: bool) -> None:
        super().__init__()
        self._exchanges = exchanges
        self._writer = writer
        self._answer = self._stream if stream else self._whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        finished = False
        try:
            async with anyio.create_task_group() as group:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                group.start_soon(watch)
                await self._answer(scope, receive, send)
                finished = True
                group.cancel_scope.cancel()
        finally:
            if not finished:
                self._exchanges.cancel()

    async def _stream(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for chunk in self._chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        writer = self._writer
        parsers = [exchange.accepted.new_parser() for exchange in self._exchanges.all]
        ends: dict[int, Finished] = {}
        for chunk in writer.begin():
            yield chunk
        async for told in self._exchanges.events(COMMENT_EVERY_S):
            if told is None:
                yield writer.sign_of_life
                continue
            index, event = told
            if isinstance(event, Token):
                chunks = writer.token(index, event, parsers[index].feed(event.text))
            elif event.reason in FAILURES:
                self._exchanges.cancel()  # the others: half of what was asked for is no answer
                for chunk in writer.failed(of_finished(event)):
                    yield chunk
                return
            else:
                ends[index] = event
                chunks = writer.end(index, event, [*parsers[index].feed(event.text), *parsers[index].finish()])
            for chunk in chunks:
                yield chunk
        for chunk in writer.close([ends[index] for index in sorted(ends)]):
            yield chunk

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        ends: dict[int, Finished] = {}
        async for told in self._exchanges.events(COMMENT_EVERY_S):
            if told is not None and isinstance(told[1], Finished):
                ends[told[0]] = told[1]
                if told[1].reason in FAILURES:
                    self._exchanges.cancel()
        failed = next((finished for finished in ends.values() if finished.reason in FAILURES), None)
        if failed is not None:
            fault = of_finished(failed)
            content = self._writer.failure(fault)
            await JSONResponse(content, fault.status, headers=fault.headers)(scope, receive, send)
            return
        answers = [_answered(exchange, ends[index]) for index, exchange in enumerate(self._exchanges.all)]
        await JSONResponse(self._writer.whole(answers))(scope, receive, send)


def _answered(exchange: Exchange, finished: Finished) -> Answered:
    return Answered(exchange.tokens, exchange.text, exchange.accepted.reply(exchange.text), finished)
