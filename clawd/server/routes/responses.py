"""`POST /v1/responses`, without state: nothing is to be fetched or gone on from by its id."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from clawd.server.answers import Answer
from clawd.server.documents import NAMED_EVENTS, TURN_HEADERS, answer
from clawd.server.exchanges import begin
from clawd.server.openai_responses.documents import ResponseObject
from clawd.server.openai_responses.schema import ResponsesRequest
from clawd.server.openai_responses.translate import chat_of
from clawd.server.openai_responses.writer import ResponseWriter
from clawd.server.services import Services


def make_router(services: Services) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/responses", responses=answer(ResponseObject, NAMED_EVENTS), openapi_extra=TURN_HEADERS)
    async def responses(request: Request, asked: ResponsesRequest) -> Response:
        services.count_unknown(asked.unknown_fields())
        exchanges = await begin(services, request, chat_of(asked))
        first = exchanges.first
        writer = ResponseWriter(first.turn_id, asked, first.generation.sampling, first.new_parser)
        return Answer(exchanges, writer, stream=bool(asked.stream))

    return router
