"""What the OpenAPI page says of answers: their bodies, their errors, the headers that clawd reads.

The bodies are made elsewhere (by each family's writer, the routes); that these models are true of them is
tested against a running server. Objects may hold more than is said here.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel

from clawd.server.exchange import PRIORITY_HEADER
from clawd.server.sessions.identity import SESSION_HEADER
from clawd.server.sessions.kinds import KINDS, TURN_TYPE_HEADER
from clawd.server.sessions.place import SESSION_DONE_HEADER

FinishReason = Literal["stop", "length", "tool_calls"]


class ErrorInfo(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Of every answer that isn't 200."""

    error: ErrorInfo


class PromptTokensDetails(BaseModel):
    cached_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CalledFunction(BaseModel):
    name: str
    arguments: str


class ToolCall(BaseModel):
    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(BaseModel):
    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[TokenLogprob]


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    turn_id: str | None = None  # of several answers: what feedback names


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage


class Model(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[Model]


class FeedbackResult(BaseModel):
    turn_id: str
    applied: bool
    note: str


class TurnVote(BaseModel):
    judge: str
    score: Literal[-1, 0, 1] | None
    reason: str
    hint: str | None


class TurnSample(BaseModel):
    state: str
    reward: Literal[-1, 0, 1] | None


class TurnView(BaseModel):
    turn_id: str
    session_id: str
    kind: Literal["main", "side"]
    state: str
    reason: str | None
    version_id: str | None
    messages: list[dict[str, Any]]
    response: str
    finish_reason: str | None
    prompt_tokens: int
    response_tokens: int
    next_state: list[dict[str, Any]] | None
    votes: list[TurnVote]
    sample: TurnSample | None


class Health(BaseModel):
    status: str


Responses = dict[int | str, dict[str, Any]]

ERRORS: Responses = {
    400: {"model": ErrorBody, "description": "The request asks for what can't be; `code` and `param` say what."},
    401: {"model": ErrorBody, "description": "The key is nobody's, or one is needed."},
    403: {"model": ErrorBody, "description": "Another user's, or not asked under this machine's own name."},
    404: {"model": ErrorBody, "description": "There is no such thing."},
    413: {"model": ErrorBody, "description": "The body is too large."},
    500: {"model": ErrorBody, "description": "clawd failed; its log says why."},
    503: {"model": ErrorBody, "description": "The engine or the store can't be had at the moment."},
}
"""Of every route."""

BUSY: Responses = {
    429: {
        "model": ErrorBody,
        "description": "Too many requests are being answered.",
        "headers": {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}},
    }
}


TEXT = {"type": "string"}
UNNAMED_EVENTS = "`data: {…}` lines, the last of them `data: [DONE]`"
NAMED_EVENTS = "`event: …` and `data: {…}` lines; the event's name is its `type`"


def answer(model: type[BaseModel], events: str = UNNAMED_EVENTS) -> Responses:
    """Of a route that answers whole or as a stream."""
    # On this page's version the schema of a stream is that of one event.
    event = {"type": "object", "required": ["data"], "properties": {"data": TEXT, "event": TEXT}, "description": events}
    stream = {"schema": event}
    return {200: {"model": model, "content": {"text/event-stream": stream}}, **BUSY}


def with_errors(model: type[BaseModel], answers: Responses) -> Responses:
    """Of a route whose API has errors of another shape."""
    worded = {status: {**told, "model": model} for status, told in {**ERRORS, **answers}.items() if status != 200}
    return {**worded, 200: answers[200]}


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


TURN_HEADERS: dict[str, Any] = {
    "parameters": [
        _header(SESSION_HEADER, "The client's name for the conversation.", {"type": "string", "maxLength": 256}),
        _header(SESSION_DONE_HEADER, "This is the session's last turn.", {"enum": ["true", "false"]}),
        _header(TURN_TYPE_HEADER, "`side`: never learnt from.", {"enum": sorted(KINDS)}),
        _header(PRIORITY_HEADER, "`background`: answered when nobody waits.", {"enum": ["background"]}),
    ]
}
"""`openapi_extra` of the routes that make turns."""


def install(app: FastAPI) -> None:
    """Let the page say what is true of all routes: refused bodies are a 400, and a key may be sent."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        page = made()
        for methods in page["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)
        components = page.setdefault("components", {})
        for name in ("HTTPValidationError", "ValidationError"):
            components.get("schemas", {}).pop(name, None)
        components["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer"},
            "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
        page["security"] = [{}, {"key": []}, {"x-api-key": []}]  # on loopback a key is needed only once a user has one
        return page

    app.openapi = openapi  # type: ignore[method-assign]
