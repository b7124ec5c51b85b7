"""What the translators of other API families share. Each puts a request as the chat request that means the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from clawd.server.errors import ApiError
from clawd.server.openai_chat.schema import ChatRequest


def chat_request(fields: Mapping[str, Any]) -> ChatRequest:
    """A chat request of those `fields` that are not None.

    Raises:
        ApiError: 400 for what a chat request can't hold, should the family's own schema have let it pass.
    """
    try:
        return ChatRequest.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise refused(place, first["msg"]) from None


def refused(place: str, why: str, code: str = "invalid_value") -> ApiError:
    """A 400 that names the place in the request as the client knows it."""
    return ApiError(400, f"{place}: {why}", code=code, param=place)


def unsupported(place: str, why: str) -> ApiError:
    """A 400 for what the API has, and clawd hasn't."""
    return refused(place, why, "unsupported_value")


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def objects(value: Any, place: str) -> list[dict[str, Any]]:
    """The objects of a list; nothing is an empty one.

    Raises:
        ApiError: 400 for anything else.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise refused(place, "send a list of objects")
    return value


def text_of(item: Mapping[str, Any], key: str, place: str) -> str:
    """The text under a key; "" if there is none.

    Raises:
        ApiError: 400 for anything else.
    """
    value = item.get(key)
    if value is not None and not isinstance(value, str):
        raise refused(f"{place}.{key}", "send a string")
    return value or ""
