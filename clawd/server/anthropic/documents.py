"""What the OpenAPI page says of the Messages API's answers. That it is true is tested against a running server."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class ErrorInfo(BaseModel):
    type: str
    message: str


class MessagesError(BaseModel):
    """Of every answer that isn't 200."""

    type: Literal["error"]
    error: ErrorInfo


class TextBlock(BaseModel):
    type: Literal["text"]
    text: str


class ThinkingBlock(BaseModel):
    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseBlock(BaseModel):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class MessagesUsage(BaseModel):
    input_tokens: int  # read; those that were remembered are counted apart
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class AnthropicMessage(BaseModel):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessagesUsage


class TokenCount(BaseModel):
    input_tokens: int
