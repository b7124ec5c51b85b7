"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from clawd.server.answers import Answer
from clawd.server.documents import TURN_HEADERS, ChatCompletion, answer
from clawd.server.exchanges import begin
from clawd.server.openai_chat.schema import ChatRequest
from clawd.server.openai_chat.writer import ChatWriter
from clawd.server.services import Services
from clawd.server.wire import Head, system_fingerprint


def make_router(services: Services) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", responses=answer(ChatCompletion), openapi_extra=TURN_HEADERS)
    async def chat_completions(request: Request, chat: ChatRequest) -> Response:
        exchanges = await begin(services, request, chat)
        head = Head(
            id=f"chatcmpl-{exchanges.first.turn_id}",
            created=int(time.time()),
            model=chat.model,
            fingerprint=system_fingerprint(services.versions.base_fingerprint, exchanges.first.target.version),
            include_usage=bool(chat.stream_options and chat.stream_options.include_usage),
        )
        writer = ChatWriter(head, services.vocabulary, exchanges.turn_ids, with_logprobs=bool(chat.logprobs))
        return Answer(exchanges, writer, stream=bool(chat.stream))

    return router
