"""The messages of a chat as its template is to get them."""

from __future__ import annotations

from typing import Any

from clawd.server.errors import ApiError
from clawd.store.records import Message

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
"""Roles that clients send, and what templates call them."""


def for_template(messages: list[Message]) -> list[Message]:
    """The messages as chat templates understand them: known roles, content as text.

    Raises:
        ApiError: 400 for an unknown role, or content that isn't text.
    """
    return [_for_template(message, place) for place, message in enumerate(messages)]


def _for_template(message: Message, place: int) -> Message:
    role = ROLES.get(str(message.get("role")))
    if role is None:
        raise ApiError(
            400,
            f"messages.{place}.role: {message.get('role')!r} is none of {', '.join(ROLES)}.",
            code="invalid_value",
            param=f"messages.{place}.role",
        )
    cleaned = {**message, "role": role, "content": _content_text(message.get("content"), place)}
    calls = cleaned.pop("tool_calls", None)
    if calls:  # null and [] are no calls, and templates ask whether the key is there
        cleaned["tool_calls"] = _calls(calls, place)
    return cleaned


def _calls(calls: Any, place: int) -> list[Any]:
    for call in calls if isinstance(calls, list) else [None]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ApiError(
                400,
                f"messages.{place}.tool_calls: send a list of objects with a function that has a name.",
                code="invalid_value",
                param=f"messages.{place}.tool_calls",
            )
    return list(calls)


def _content_text(content: Any, place: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part_text(part, place) for part in content)
    raise ApiError(400, f"messages.{place}.content: send a string or a list of parts.", code="invalid_value")


def _part_text(part: Any, place: int) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise ApiError(
        400,
        f"messages.{place}.content: a part of type {kind!r} came to a text model; send parts of type 'text'.",
        code="unsupported_content",
        param=f"messages.{place}.content",
    )
