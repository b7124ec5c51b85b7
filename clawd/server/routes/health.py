"""`/healthz`: this process answers. `/readyz`: it can answer a chat."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse

from clawd.server.documents import Health
from clawd.server.services import Services


def make_router(services: Services) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz", responses={200: {"model": Health}})
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @router.get("/readyz", responses={200: {"model": Health}, 503: {"model": Health}})
    async def readyz() -> JSONResponse:
        ready = services.engine.alive
        return JSONResponse({"status": "ready" if ready else "engine stopped"}, 200 if ready else 503)

    return router
