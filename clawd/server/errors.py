"""Errors in the shape of the API that was asked. The one place where clawd's exceptions become HTTP statuses."""

from __future__ import annotations

import logging
from collections.abc import Mapping
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
from clawd.server.anthropic.errors import error_body
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


ANTHROPIC_PATH = "/v1/messages"

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


@dataclass(frozen=True)
class Fault:
    """What went wrong, before it is put in an API's words."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after_s: int | None = None  # none: trying again won't help, or nobody can say when
    cause: BaseException | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after_s)} if self.retry_after_s else {}


def respond(path: str, fault: Fault, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a request for `path`."""
    if path == ANTHROPIC_PATH or path.startswith(f"{ANTHROPIC_PATH}/"):
        content = error_body(fault.status, fault.message, fault.cause)
    else:
        content = body(fault.status, fault.message, fault.code, fault.param)
    return JSONResponse(content, fault.status, headers={**(headers or {}), **fault.headers})


def body(status: int, message: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind_of(status), "param": param, "code": code}}


def of_exception(error: BaseException) -> Fault:
    """What clawd didn't raise on purpose is logged and told without its insides."""
    if isinstance(error, ApiError):
        return Fault(error.status, str(error), error.code, error.param, error.retry_after_s)
    for kind, (status, code) in STATUSES.items():
        if isinstance(error, kind):
            retry_after_s = RETRY_AFTER_S if isinstance(error, TookTooLong) else None
            return Fault(status, str(error), code, retry_after_s=retry_after_s, cause=error)
    log.error("unexpected error while answering", exc_info=error)
    return Fault(500, "clawd failed on this request; its log says why.", "internal_error")


def of_finished(finished: Finished) -> Fault:
    """What the client is told of a request that ended with an error after it was accepted."""
    if finished.cause is None:
        return Fault(500, ENGINE_FAILED, "engine_failed")
    return of_exception(finished.cause)


def _invalid(problem: dict[str, Any]) -> Fault:
    """What is wrong with a body, and where."""
    place = ".".join(str(part) for part in problem["loc"] if part != "body" and problem["type"] != "json_invalid")
    said = str(problem["msg"]).removeprefix("Value error, ")
    if not place and isinstance(problem.get("input"), bytes):
        said = "The body was not read as JSON: send it with `Content-Type: application/json`."
    return Fault(400, f"{place}: {said}" if place else said, "invalid_value", place or None)


def install(app: FastAPI) -> None:
    """Let every error that reaches the application's edge leave it in the API's own shape."""

    async def raised(request: Request, error: Exception) -> JSONResponse:
        return respond(request.url.path, of_exception(error))

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        fault = Fault(error.status_code, str(error.detail), HTTP_CODES.get(error.status_code))
        return respond(request.url.path, fault, error.headers)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return respond(request.url.path, _invalid(error.errors()[0]))

    app.add_exception_handler(ClawdError, raised)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, raised)
