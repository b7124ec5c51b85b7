"""ASGI responses that notice at once when the client goes away, streaming or not.

Starlette's own streaming response learns of it only at its next send, which may be a long prompt later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from clawd.model.replies.deltas import CallBegins, Delta
from clawd.model.vocab import Vocabulary
from clawd.server.engine.types import Finished, Token
from clawd.server.errors import failure, of_failure
from clawd.server.exchange import Exchange
from clawd.server.wire import COMMENT, DONE, ChatFrame, finish_reason, logprobs, message_delta, sse

COMMENT_EVERY_S = 5.0
"""A comment at least this often while there is nothing to send: clients and proxies give up on silent streams."""

SSE_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class ChatAnswer(Response):
    """Answers one exchange, and cancels it if the client goes before its end."""

    def __init__(
        self, exchange: Exchange, frame: ChatFrame, vocabulary: Vocabulary, *, stream: bool, with_logprobs: bool
    ) -> None:
        super().__init__()
        self._exchange = exchange
        self._frame = frame
        self._vocabulary = vocabulary
        self._answer = self._stream if stream else self._whole
        self._with_logprobs = with_logprobs

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
                self._exchange.cancel()

    async def _stream(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(name.encode(), value.encode()) for name, value in SSE_HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for chunk in self._chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        frame = self._frame
        parser = self._exchange.accepted.new_parser()
        called = False
        yield frame.delta({"role": "assistant", "content": ""})
        async for event in self._exchange.events(COMMENT_EVERY_S):
            if event is None:
                yield COMMENT
            elif isinstance(event, Token):
                scores = self._scores([event])
                deltas = parser.feed(event.text)
                called |= any(isinstance(delta, CallBegins) for delta in deltas)
                for chunk in self._deltas(deltas, scores):
                    yield chunk
            elif event.reason in ("error", "cancelled"):
                yield sse(of_failure(event)[1])
                return
            else:
                deltas = [*parser.feed(event.text), *parser.finish()]
                called |= any(isinstance(delta, CallBegins) for delta in deltas)
                for chunk in self._deltas(deltas, None):
                    yield chunk
                yield frame.delta({}, reason=finish_reason(event, called))
                if frame.include_usage:
                    yield frame.usage(event)
                yield DONE

    def _scores(self, tokens: list[Token]) -> dict[str, Any] | None:
        """The log-probabilities of tokens that have a text; None: not asked for, or there are none.

        The token that ends the answer is no part of its content. It is in the store.
        """
        said = [token for token in tokens if not self._vocabulary.is_end(token.id)]
        return logprobs(said, self._vocabulary) if self._with_logprobs and said else None

    def _deltas(self, deltas: list[Delta], scores: dict[str, Any] | None) -> Iterator[bytes]:
        """Chunks for what one token said; its scores go with the first, or alone if it said nothing yet."""
        for place, delta in enumerate(deltas):
            yield self._frame.delta(message_delta(delta), scores=None if place else scores)
        if scores and not deltas:
            yield self._frame.delta({"content": ""}, scores=scores)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        finished: Finished | None = None
        async for event in self._exchange.events(COMMENT_EVERY_S):
            if isinstance(event, Finished):
                finished = event
        assert finished is not None
        if finished.reason in ("error", "cancelled"):
            await failure(finished)(scope, receive, send)
            return
        scores = self._scores(self._exchange.tokens)
        reply = self._exchange.accepted.reply(self._exchange.text)
        whole = self._frame.whole(reply, finished, scores)
        await JSONResponse(whole)(scope, receive, send)
