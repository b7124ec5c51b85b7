"""`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from clawd.server.answers import Answer
from clawd.server.anthropic.documents import AnthropicMessage, MessagesError, TokenCount
from clawd.server.anthropic.schema import MessagesRequest, PromptRequest
from clawd.server.anthropic.translate import chat_of, prompt_of
from clawd.server.anthropic.writer import MessageWriter
from clawd.server.auth import identify
from clawd.server.documents import NAMED_EVENTS, TURN_HEADERS, answer, with_errors
from clawd.server.exchanges import begin
from clawd.server.openai_chat.messages import for_template
from clawd.server.services import Services


def make_router(services: Services) -> APIRouter:
    router = APIRouter()

    answers = with_errors(MessagesError, answer(AnthropicMessage, NAMED_EVENTS))
    counts = with_errors(MessagesError, {200: {"model": TokenCount}})

    @router.post("/v1/messages", responses=answers, openapi_extra=TURN_HEADERS)
    async def messages(request: Request, asked: MessagesRequest) -> Response:
        services.count_unknown(asked.unknown_fields())
        exchanges = await begin(services, request, chat_of(asked))
        first = exchanges.first
        writer = MessageWriter(
            name=f"msg_{first.turn_id}",
            model=asked.model,
            prompt_tokens=len(first.generation.prompt_ids),
            new_parser=first.new_parser,
            eager_tools={tool["name"] for tool in asked.tools or [] if tool.get("eager_input_streaming") is True},
        )
        return Answer(exchanges, writer, stream=bool(asked.stream))

    @router.post("/v1/messages/count_tokens", responses=counts)
    async def count_tokens(request: Request, asked: PromptRequest) -> dict[str, Any]:
        services.count_unknown(asked.unknown_fields())
        chat = prompt_of(asked)

        def count() -> int:
            services.versions.resolve(identify(services.store, request, services.owner_key), chat.model)
            tools, arguments = chat.offered_tools(), chat.template_arguments()
            return len(services.renderer.prompt_ids(for_template(chat.messages), tools=tools, **arguments))

        return {"input_tokens": await run_in_threadpool(count)}

    return router
