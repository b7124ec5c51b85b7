"""What a request to the Messages API may hold. What content blocks mean is `translate`'s business."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from clawd.server.body import Body
from clawd.server.openai_chat.schema import MAX_STOPS

Object = dict[str, Any]

TEXT = {"type": "string"}
TEXT_BLOCK = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": TEXT},
}
TEXTS = {"anyOf": [TEXT, {"type": "array", "items": TEXT_BLOCK}]}
THINKING_BLOCK = {
    "type": "object",
    "required": ["type", "thinking"],
    "properties": {"type": {"const": "thinking"}, "thinking": TEXT, "signature": TEXT},
}
TOOL_USE_BLOCK = {
    "type": "object",
    "required": ["type", "id", "name", "input"],
    "properties": {
        "type": {"const": "tool_use"},
        "id": TEXT,
        "name": {"type": "string", "minLength": 1},
        "input": {"type": "object"},
    },
}
TOOL_RESULT_BLOCK = {
    "type": "object",
    "required": ["type", "tool_use_id"],
    "properties": {
        "type": {"const": "tool_result"},
        "tool_use_id": TEXT,
        "content": TEXTS,
        "is_error": {"type": "boolean"},
    },
}


def _message(role: str, *blocks: Object) -> Object:
    content = {"anyOf": [TEXT, {"type": "array", "items": {"anyOf": [TEXT_BLOCK, *blocks]}}]}
    return {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"const": role}, "content": content},
    }


ANY_MESSAGE = [
    _message("user", TOOL_RESULT_BLOCK),
    _message("assistant", THINKING_BLOCK, TOOL_USE_BLOCK),
    _message("system"),
]
MessageObject = Annotated[Object, WithJsonSchema({"anyOf": ANY_MESSAGE})]
SystemPrompt = Annotated[str | list[Object], WithJsonSchema(TEXTS)]
ToolObject = Annotated[
    Object,
    WithJsonSchema(
        {
            "type": "object",
            "required": ["name", "input_schema"],
            "properties": {
                "type": {"const": "custom"},
                "name": {"type": "string", "minLength": 1},
                "description": TEXT,
                "input_schema": {"type": "object"},
                "strict": {"type": "boolean"},
                "eager_input_streaming": {"type": "boolean"},
            },
        }
    ),
]
FormatObject = Annotated[
    Object,
    WithJsonSchema(
        {
            "type": "object",
            "required": ["type", "schema"],
            "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object"}},
        }
    ),
]
"""These come as they are; `translate` says what is wrong with one. The schemas are for the OpenAPI page."""


class ToolChoice(BaseModel):
    model_config = ConfigDict(extra="ignore")

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None  # of the tool that must be used, with type `tool`
    disable_parallel_tool_use: bool | None = None


class Thinking(BaseModel):
    """Any type but `disabled` asks for it. How much it may take (`budget_tokens`) can't be bounded."""

    model_config = ConfigDict(extra="allow")

    type: str


class OutputConfig(BaseModel):
    model_config = ConfigDict(extra="allow")

    effort: str | None = None
    format: FormatObject | None = None


class Metadata(BaseModel):
    model_config = ConfigDict(extra="ignore")

    user_id: str | None = None


class PromptRequest(Body):
    """All that reaches the prompt: `POST /v1/messages/count_tokens`. Unknown fields are let pass and counted."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: Annotated[list[MessageObject], Field(min_length=1)]
    system: SystemPrompt | None = None
    tools: list[ToolObject] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    def unknown_fields(self) -> list[str]:
        """Names of what nobody reads, as a client knows them."""
        nested = {"thinking": self.thinking, "output_config": self.output_config}
        return sorted(
            [*(self.model_extra or {})]
            + [f"{name}.{key}" for name, part in nested.items() if part for key in part.model_extra or {}]
        )


class MessagesRequest(PromptRequest):
    """`POST /v1/messages`."""

    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool | None = False
    stop_sequences: Annotated[list[str], Field(max_length=MAX_STOPS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    metadata: Metadata | None = None
