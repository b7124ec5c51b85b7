"""The application: routes over the shared services. Knows neither processes nor sockets."""

from __future__ import annotations

from fastapi import FastAPI

from clawd import __version__
from clawd.server import documents, errors
from clawd.server.access import AccessGuard
from clawd.server.routes import admin, chat, completions, health, messages, metrics, models, responses
from clawd.server.services import Services

ROUTERS = (
    health.make_router,
    models.make_router,
    metrics.make_router,
    chat.make_router,
    completions.make_router,
    messages.make_router,
    responses.make_router,
    admin.make_router,
)


def create_app(services: Services) -> FastAPI:
    app = FastAPI(title="clawd", version=__version__, docs_url=None, redoc_url=None, responses=documents.ERRORS)
    documents.install(app)
    errors.install(app)
    app.add_middleware(
        AccessGuard, store=services.store, settings=services.settings.server, owner_key=services.owner_key
    )
    for make_router in ROUTERS:
        app.include_router(make_router(services))
    return app
