"""Errors in Anthropic's shape."""

from __future__ import annotations

from typing import Any

from clawd.errors import ContextOverflow

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def error_body(status: int, message: str, cause: BaseException | None = None) -> dict[str, Any]:
    if isinstance(cause, ContextOverflow):  # agents read this wording, and compact the conversation
        message = f"prompt is too long: {cause.prompt_tokens} tokens > {cause.context_tokens} maximum. {message}"
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
