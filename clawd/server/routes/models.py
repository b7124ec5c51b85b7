"""`GET /v1/models`: the base, and the adapters that the caller may use, with their versions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from clawd.model import names
from clawd.server.auth import identify
from clawd.server.documents import Model, ModelList
from clawd.server.errors import ApiError
from clawd.server.services import Services


def make_router(services: Services) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/models", responses={200: {"model": ModelList}})
    def models(request: Request) -> dict[str, Any]:
        return {"object": "list", "data": [_model(name, services.started_at) for name in names_for(request)]}

    @router.get("/v1/models/{name:path}", responses={200: {"model": Model}})
    def model(request: Request, name: str) -> dict[str, Any]:
        if name not in names_for(request):
            raise ApiError(404, f"There is no model {name!r}: GET /v1/models lists all.", code="model_not_found")
        return _model(name, services.started_at)

    def names_for(request: Request) -> list[str]:
        user = identify(services.store, request, services.owner_key)
        found = [names.FAMILY]
        for adapter in services.store.people.adapters_of(user):
            found.append(names.adapter_model(adapter.name))
            found += [
                names.adapter_model(adapter.name, version.number)
                for version in services.store.updates.versions(adapter.id)
                if version.state in ("active", "retired")
            ]
        return [*found, services.versions.base_name]

    return router


def _model(name: str, created: float) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": int(created), "owned_by": "clawd"}
