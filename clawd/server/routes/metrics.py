"""`GET /metrics`."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from clawd.server.services import Services


def make_router(services: Services) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics", response_class=PlainTextResponse)
    def metrics() -> Response:
        return Response(services.metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    return router
