"""Errors in the OpenAI shape. The one place where clawd's exceptions become HTTP statuses."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from clawd.errors import (
    AdapterError,
    ClawdError,
    ContextOverflow,
    EngineStopped,
    NameRefused,
    NotAllowed,
    StoreError,
    TemplateError,
    TookTooLong,
    TransitionRefused,
    UnknownName,
)
from clawd.server.engine.types import Finished

log = logging.getLogger(__name__)

RETRY_AFTER_S = 5
ENGINE_FAILED = "The engine failed on this request; its log says why. Send it again."


class ApiError(ClawdError):
    """An answer other than 200, chosen where it is raised."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s  # none: trying again won't help, or nobody can say when
        self.status = status
        self.code = code
        self.param = param


STATUSES: dict[type[ClawdError], tuple[int, str]] = {
    ContextOverflow: (400, "context_length_exceeded"),
    TemplateError: (400, "chat_template_failed"),
    NameRefused: (400, "invalid_name"),
    NotAllowed: (403, "not_allowed"),
    UnknownName: (404, "not_found"),
    AdapterError: (409, "adapter_unusable"),
    EngineStopped: (503, "engine_stopped"),
    TookTooLong: (503, "took_too_long"),
    TransitionRefused: (409, "conflict"),  # before its parent: asking again won't help
    StoreError: (503, "store_unavailable"),
}


HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}
"""Codes of errors that the framework raises."""


def kind_of(status: int) -> str:
    """OpenAI's `type` for a status."""
    if status == 401:
        return "authentication_error"
    if status == 403:
        return "permission_error"
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def body(status: int, message: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind_of(status), "param": param, "code": code}}


def of_exception(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Status and body. What clawd didn't raise on purpose is logged and told without its insides."""
    if isinstance(error, ApiError):
        return error.status, body(error.status, str(error), error.code, error.param)
    for kind, (status, code) in STATUSES.items():
        if isinstance(error, kind):
            return status, body(status, str(error), code)
    log.error("unexpected error while answering", exc_info=error)
    return 500, body(500, "clawd failed on this request; its log says why.", "internal_error")


@dataclass(frozen=True)
class Failure:
    """What the client is told of a request that ended with an error after it was accepted."""

    status: int
    message: str
    code: str
    headers: dict[str, str] | None = None

    @classmethod
    def of(cls, finished: Finished) -> Failure:
        if finished.cause is None:
            return cls(500, ENGINE_FAILED, "engine_failed")
        status, told = of_exception(finished.cause)
        return cls(status, told["error"]["message"], told["error"]["code"], retry_headers(finished.cause))


def retry_headers(error: BaseException) -> dict[str, str] | None:
    """When to come back; None: trying again won't help, or nobody can say when."""
    if isinstance(error, TookTooLong):
        return {"Retry-After": str(RETRY_AFTER_S)}
    seconds = error.retry_after_s if isinstance(error, ApiError) else None
    return {"Retry-After": str(seconds)} if seconds else None


def install(app: FastAPI) -> None:
    """Let every error that reaches the application's edge leave it in the OpenAI shape."""

    async def raised(_request: Request, error: Exception) -> JSONResponse:
        status, content = of_exception(error)
        return JSONResponse(content, status, headers=retry_headers(error))

    async def http(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        content = body(error.status_code, str(error.detail), HTTP_CODES.get(error.status_code))
        return JSONResponse(content, error.status_code, headers=error.headers)

    async def invalid(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body" and first["type"] != "json_invalid")
        return JSONResponse(body(400, f"{place}: {first['msg']}", "invalid_value", place or None), 400)

    app.add_exception_handler(ClawdError, raised)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, raised)
