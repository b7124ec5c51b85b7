"""An error is worded as the API does that was asked, on every one of its paths and on no other."""

from __future__ import annotations

import json

import pytest

from clawd.errors import ContextOverflow, EngineStopped, NotAllowed, StoreError, TookTooLong, UnknownName
from clawd.server.errors import ApiError, of_exception, respond

OPENAI = ["/v1/chat/completions", "/v1/responses", "/v1/messagesx", "/clawd/v1/status", "/"]
ANTHROPIC = ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches"]
ERRORS = [
    (ApiError(401, "no key", code="invalid_api_key"), 401, "authentication_error", "authentication_error"),
    (NotAllowed("not yours"), 403, "permission_error", "permission_error"),
    (UnknownName("nobody"), 404, "invalid_request_error", "not_found_error"),
    (ApiError(413, "too large"), 413, "invalid_request_error", "request_too_large"),
    (ApiError(429, "busy", retry_after_s=5), 429, "rate_limit_error", "rate_limit_error"),
    (ContextOverflow(9000, 8192), 400, "invalid_request_error", "invalid_request_error"),
    (EngineStopped("gone"), 503, "server_error", "api_error"),
    (TookTooLong("late"), 503, "server_error", "api_error"),
    (StoreError("full"), 503, "server_error", "api_error"),
    (RuntimeError("secret"), 500, "server_error", "api_error"),
]


@pytest.mark.parametrize(("error", "status", "openai", "anthropic"), ERRORS)
def test_both_shapes(error: Exception, status: int, openai: str, anthropic: str) -> None:
    for path in OPENAI:
        reply = respond(path, of_exception(error))
        body = json.loads(bytes(reply.body))
        assert (reply.status_code, body["error"]["type"]) == (status, openai)
        assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    for path in ANTHROPIC:
        reply = respond(path, of_exception(error))
        body = json.loads(bytes(reply.body))
        assert (reply.status_code, body["type"], body["error"]["type"]) == (status, "error", anthropic)
        assert set(body) == {"type", "error"} and set(body["error"]) == {"type", "message"}
        assert "secret" not in body["error"]["message"]


def test_when_to_come_back_is_said_in_both() -> None:
    busy = of_exception(ApiError(429, "busy", retry_after_s=5))
    assert [respond(path, busy).headers["retry-after"] for path in (OPENAI[0], ANTHROPIC[0])] == ["5", "5"]
    assert int(respond(OPENAI[0], of_exception(TookTooLong("late"))).headers["retry-after"]) > 0
    assert "retry-after" not in respond(OPENAI[0], of_exception(EngineStopped("gone"))).headers
