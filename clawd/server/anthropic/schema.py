"""What a request to the Messages API may hold. What content blocks mean is `translate`'s business."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from clawd.server.body import Body
from clawd.server.schema import MAX_STOPS

Object = dict[str, Any]


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
    format: Object | None = None


class Metadata(BaseModel):
    model_config = ConfigDict(extra="ignore")

    user_id: str | None = None


class PromptRequest(Body):
    """All that reaches the prompt: `POST /v1/messages/count_tokens`. Unknown fields are let pass and counted."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: Annotated[list[Object], Field(min_length=1)]
    system: str | list[Object] | None = None
    tools: list[Object] | None = None
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
