"""What a request to the Responses API may hold. What input items mean is `translate`'s business."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from clawd.server.body import Body

Object = dict[str, Any]

TEXT = {"type": "string"}
NAME = {"type": "string", "minLength": 1}


def _parts(kind: str) -> Object:
    part = {"type": "object", "required": ["type", "text"], "properties": {"type": {"const": kind}, "text": TEXT}}
    return {"anyOf": [TEXT, {"type": "array", "items": part}]}


def _item(required: list[str], **properties: Object) -> Object:
    return {"type": "object", "required": required, "properties": properties}


ANY_ITEM = [
    _item(["role", "content"], role={"enum": ["user", "system", "developer"]}, content=_parts("input_text")),
    _item(["role", "content"], role={"const": "assistant"}, content=_parts("output_text")),
    _item(
        ["type", "call_id", "name", "arguments"],
        type={"const": "function_call"},
        call_id=TEXT,
        name=NAME,
        arguments=TEXT,
    ),
    _item(
        ["type", "call_id", "output"],
        type={"const": "function_call_output"},
        call_id=TEXT,
        output=_parts("input_text"),
    ),
]
Item = Annotated[Object, WithJsonSchema({"anyOf": ANY_ITEM})]
FunctionTool = Annotated[
    Object,
    WithJsonSchema(
        _item(
            ["type", "name"],
            type={"const": "function"},
            name=NAME,
            description=TEXT,
            parameters={"type": "object"},
            strict={"type": "boolean"},
        )
    ),
]
Choice = Annotated[
    str | Object,
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["none", "auto", "required"]},
                _item(["type", "name"], type={"const": "function"}, name=NAME),
            ]
        }
    ),
]
Format = Annotated[
    Object,
    WithJsonSchema(
        {
            "anyOf": [
                _item(["type"], type={"enum": ["text", "json_object"]}),
                _item(["type", "name", "schema"], type={"const": "json_schema"}, name=NAME, schema={"type": "object"}),
            ]
        }
    ),
]
"""These come as they are; `translate` says what is wrong with one. The schemas are for the OpenAPI page."""

NEVER = WithJsonSchema({"type": "null"})
"""Of a field that must not be sent: it asks for state."""


class Text(BaseModel):
    model_config = ConfigDict(extra="allow")

    format: Format | None = None


class Reasoning(BaseModel):
    model_config = ConfigDict(extra="allow")

    effort: str | None = None


class ResponsesRequest(Body):
    """`POST /v1/responses`. Unknown fields are let pass and counted; what asks for state is refused."""

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    stream: bool | None = False
    prompt_cache_key: str | None = None
    user: str | None = None
    metadata: Object | None = None  # given back, as the API does
    store: bool | None = None  # answered `false`: there is no asking for a response later
    truncation: str | None = None  # answered `disabled`: a prompt that doesn't fit is refused
    background: Annotated[bool | None, WithJsonSchema({"enum": [False, None]})] = None
    previous_response_id: Annotated[str | None, NEVER] = None
    conversation: Annotated[str | Object | None, NEVER] = None
    prompt: Annotated[Object | None, NEVER] = None  # a template that OpenAI keeps

    def unknown_fields(self) -> list[str]:
        """Names of what nobody reads, as a client knows them."""
        nested = {"text": self.text, "reasoning": self.reasoning}
        return sorted(
            [*(self.model_extra or {})]
            + [f"{name}.{key}" for name, part in nested.items() if part for key in part.model_extra or {}]
        )
