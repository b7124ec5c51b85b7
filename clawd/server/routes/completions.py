"""`POST /v1/completions`: bare text or token ids go on."""

from __future__ import annotations

import time

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from clawd.server.answers import Answer
from clawd.server.documents import TURN_HEADERS, Completion, answer
from clawd.server.exchanges import Exchanges, admitted
from clawd.server.openai_completions.accept import accept_completion
from clawd.server.openai_completions.schema import CompletionRequest
from clawd.server.openai_completions.writer import CompletionWriter
from clawd.server.services import Services
from clawd.server.wire import Head, system_fingerprint


def make_router(services: Services) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/completions", responses=answer(Completion), openapi_extra=TURN_HEADERS)
    async def completions(request: Request, asked: CompletionRequest) -> Response:
        services.count_unknown(asked.unknown_fields())
        async with admitted(services, request) as user:
            prompts, accepted = await run_in_threadpool(accept_completion, services, user, request.headers, asked)
            exchanges = Exchanges(services, accepted)
            exchanges.start()
        n = asked.n or 1
        head = Head(
            id=f"cmpl-{exchanges.first.turn_id}",
            created=int(time.time()),
            model=asked.model,
            fingerprint=system_fingerprint(services.versions.base_fingerprint, exchanges.first.target.version),
            include_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        )
        echoed = [prompt.text if asked.echo else "" for prompt in prompts for _ in range(n)]
        writer = CompletionWriter(head, services.vocabulary, n, echoed, with_logprobs=asked.logprobs is not None)
        return Answer(exchanges, writer, stream=bool(asked.stream))

    return router
