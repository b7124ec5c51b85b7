"""What a chat request may hold, and what it means for the engine."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from clawd.config import ServerSettings
from clawd.server.body import Body
from clawd.server.engine.types import SamplingParams
from clawd.server.errors import ApiError
from clawd.server.openai_chat.messages import ROLES
from clawd.store.records import Message

MAX_TOP_LOGPROBS = 20
MAX_STOPS = 16
MAX_ANSWERS = 8
"""Alternatives to one prompt: as many as are decoded together by default."""


def _named_function(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if tool.get("type", "function") != "function" or not isinstance(function, dict):
        raise ValueError('a tool is {"type": "function", "function": {"name": …, "parameters": …}}')
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise ValueError("a tool's function needs a name")
    return tool


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class JsonSchema(BaseModel):
    """Of a `response_format`."""

    model_config = ConfigDict(extra="ignore")

    name: str = ""
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = False


class ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="ignore")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> ResponseFormat:
        if self.type == "json_schema" and (self.json_schema is None or self.json_schema.schema_ is None):
            raise ValueError('json_schema: send {"name": …, "schema": {…}}')
        return self


Tool = Annotated[
    dict[str, Any],
    AfterValidator(_named_function),
    WithJsonSchema(
        {
            "type": "object",
            "required": ["function"],
            "properties": {
                "type": {"const": "function"},
                "function": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": {"type": "string", "minLength": 1},
                        "description": {"type": "string"},
                        "parameters": {"type": "object"},
                    },
                },
            },
        }
    ),
]
"""`{"type": "function", "function": {"name": …, …}}`, kept as it came."""

TEXT_PART = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}
ChatMessage = Annotated[
    Message,
    WithJsonSchema(
        {
            "type": "object",
            "required": ["role"],
            "properties": {
                "role": {"enum": list(ROLES)},
                "content": {
                    "anyOf": [{"type": "string"}, {"type": "array", "items": TEXT_PART}, {"type": "null"}],
                },
                "reasoning_content": {"type": ["string", "null"]},
                "tool_call_id": {"type": "string"},
                "tool_calls": {
                    "type": ["array", "null"],
                    "items": {
                        "type": "object",
                        "required": ["function"],
                        "properties": {
                            "id": {"type": "string"},
                            "type": {"const": "function"},
                            "function": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}},
                            },
                        },
                    },
                },
            },
        }
    ),
]
"""Kept as it came; `for_template` says what is wrong with one."""

RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "self"})
"""Template variables that chat_template_kwargs may not set."""


class GenerationFields(Body):
    """What requests for chats and for bare completions have in common."""

    model_config = ConfigDict(extra="allow")

    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: int | None = None
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=100)]] | None = None
    stop: str | list[str] | None = None
    user: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, stop: str | list[str] | None) -> str | list[str] | None:
        if isinstance(stop, list) and len(stop) > MAX_STOPS:
            raise ValueError(f"at most {MAX_STOPS} stop strings")
        return stop

    def unknown_fields(self) -> list[str]:
        return sorted(self.model_extra or {})

    def stops(self) -> tuple[str, ...]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(stop for stop in stops if stop)

    def alternatives(self) -> int:
        """Alternatives to report with each token."""
        raise NotImplementedError

    def sampling(self, defaults: ServerSettings) -> SamplingParams:
        return SamplingParams(
            temperature=defaults.default_temperature if self.temperature is None else self.temperature,
            top_p=defaults.default_top_p if self.top_p is None else self.top_p,
            top_k=max(self.top_k or 0, 0),  # -1 is another spelling of off
            min_p=self.min_p or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            seed=None if self.seed is None else self.seed % 2**64,  # any whole number names a stream of its own
            top_logprobs=self.alternatives(),
            logit_bias=tuple((self.logit_bias or {}).items()),
        )

    def check_token_ids(self, vocabulary_size: int) -> None:
        """
        Raises:
            ApiError: 400, a bias is for a token that there isn't.
        """
        unknown = [token for token in self.logit_bias or {} if not 0 <= token < vocabulary_size]
        if unknown:
            raise ApiError(
                400,
                f"logit_bias: there is no token {unknown[0]}; ids go from 0 to {vocabulary_size - 1}.",
                code="invalid_value",
                param="logit_bias",
            )


class ChatRequest(GenerationFields):
    """`POST /v1/chat/completions`. Unknown fields are let pass and counted, never an error (`unknown_fields`)."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    prompt_cache_key: str | None = None

    @field_validator("chat_template_kwargs")
    @classmethod
    def _free_names(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        taken = sorted(RESERVED & set(given or {}))
        if taken:
            raise ValueError(f"{', '.join(taken)} can't be set this way")
        return given

    @field_validator("tool_choice")
    @classmethod
    def _known_choice(cls, choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
        if isinstance(choice, dict):
            _named_function(choice)
        return choice

    def offered_tools(self) -> list[Tool] | None:
        """The tools that the model may call; None: there are none."""
        return None if self.tool_choice == "none" else self.tools or None

    def forced_tools(self) -> list[Tool]:
        """The tools of which one must be called; none: the model may do without.

        Raises:
            ApiError: 400, as there is no such tool.
        """
        if self.tool_choice in (None, "none", "auto"):
            return []
        name = self.tool_choice["function"]["name"] if isinstance(self.tool_choice, dict) else None
        forced = [tool for tool in self.tools or [] if name in (None, tool["function"]["name"])]
        if not forced:
            raise ApiError(
                400,
                f"tool_choice: there is no tool {name!r} in tools." if name else "tool_choice: there are no tools.",
                code="invalid_value",
                param="tool_choice",
            )
        return forced

    def constrained_by(self) -> str | None:
        """The field that says what the answer must look like; none: it is free."""
        if self.tool_choice not in (None, "none", "auto"):
            return "tool_choice"
        return "response_format" if self.response_format and self.response_format.type != "text" else None

    def one_call_at_most(self) -> bool:
        return self.parallel_tool_calls is False or isinstance(self.tool_choice, dict)

    def template_arguments(self) -> dict[str, Any]:
        """Variables for the chat template."""
        effort = {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}
        return {**effort, **(self.chat_template_kwargs or {})}

    def alternatives(self) -> int:
        return self.top_logprobs or 0 if self.logprobs else 0

    def token_limit(self, defaults: ServerSettings, context: int) -> int:
        """Most tokens to sample; the engine cuts it down to what fits the context."""
        asked = self.max_completion_tokens or self.max_tokens or defaults.default_max_tokens
        return asked or context


def of_answer(sampling: SamplingParams, index: int) -> SamplingParams:
    """Of one among several answers: with a seed each has its own, made from it, and the first has that itself."""
    if sampling.seed is None or index == 0:
        return sampling
    digest = hashlib.sha256(f"{sampling.seed}/{index}".encode()).digest()
    return replace(sampling, seed=int.from_bytes(digest[:8], "little"))
