"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from clawd.server.auth import identify
from clawd.server.errors import RETRY_AFTER_S, ApiError
from clawd.server.exchange import Exchange, accept
from clawd.server.responses import ChatAnswer
from clawd.server.schema import ChatRequest
from clawd.server.services import Services
from clawd.server.wire import ChatFrame

RESPONSE_PREFIX = "chatcmpl-"


def turn_of_response(response_id: str) -> str:
    """The turn that a response's id names."""
    return response_id.removeprefix(RESPONSE_PREFIX)


def make_router(services: Services) -> APIRouter:
    router = APIRouter()
    settings = services.settings.server

    @router.post("/v1/chat/completions")
    async def chat_completions(request: Request, chat: ChatRequest) -> Response:
        services.unknown_fields.update(chat.unknown_fields())
        if not services.engine.alive:
            raise ApiError(503, "The engine has failed and is being restarted.", code="engine_stopped")
        if services.in_flight >= settings.max_running + settings.max_waiting:
            raise ApiError(
                429,
                f"{services.in_flight} requests are being answered or wait: come back in a moment.",
                code="queue_full",
                retry_after_s=RETRY_AFTER_S,
            )
        user = await run_in_threadpool(identify, services.store, request, services.owner_key)
        accepted = await run_in_threadpool(accept, services, user, request.headers, chat)
        exchange = Exchange(services, accepted)
        exchange.start()
        version = accepted.target.version
        frame = ChatFrame(
            id=RESPONSE_PREFIX + accepted.turn_id,
            created=int(time.time()),
            model=chat.model,
            fingerprint=f"{services.versions.base_fingerprint[:12]}-{f'v{version.number}' if version else 'base'}",
            include_usage=bool(chat.stream_options and chat.stream_options.include_usage),
        )
        return ChatAnswer(
            exchange, frame, services.vocabulary, stream=bool(chat.stream), with_logprobs=bool(chat.logprobs)
        )

    return router
