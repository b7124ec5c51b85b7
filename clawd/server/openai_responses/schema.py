"""What a request to the Responses API may hold. What input items mean is `translate`'s business."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from clawd.server.body import Body

Object = dict[str, Any]


class Text(BaseModel):
    model_config = ConfigDict(extra="allow")

    format: Object | None = None


class Reasoning(BaseModel):
    model_config = ConfigDict(extra="allow")

    effort: str | None = None


class ResponsesRequest(Body):
    """`POST /v1/responses`. Unknown fields are let pass and counted; what asks for state is refused."""

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | Annotated[list[Object], Field(min_length=1)]
    instructions: str | None = None
    tools: list[Object] | None = None
    tool_choice: str | Object | None = None
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
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | Object | None = None
    prompt: Object | None = None  # a template that OpenAI keeps

    def unknown_fields(self) -> list[str]:
        """Names of what nobody reads, as a client knows them."""
        nested = {"text": self.text, "reasoning": self.reasoning}
        return sorted(
            [*(self.model_extra or {})]
            + [f"{name}.{key}" for name, part in nested.items() if part for key in part.model_extra or {}]
        )
