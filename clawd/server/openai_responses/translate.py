"""From a request to the Responses API to the chat request that means the same. Pure: no store, no model.

What has no counterpart is a 400 that names it, never left out in silence: state kept between requests, images, files,
tools that OpenAI runs.
"""

from __future__ import annotations

from typing import Any

from clawd.server.openai_chat.schema import ChatRequest
from clawd.server.openai_responses.history import messages_of
from clawd.server.openai_responses.schema import ResponsesRequest
from clawd.server.translating import chat_request, refused, text_of, unsupported
from clawd.store.records import Message

CHOICES = ("none", "auto", "required")
STATEFUL = {
    "previous_response_id": "clawd keeps no responses to go on from: send the whole conversation as input",
    "conversation": "clawd keeps no conversations under an id: send the whole conversation as input",
    "prompt": "clawd keeps no prompt templates: send the text as instructions and input",
}


def chat_of(asked: ResponsesRequest) -> ChatRequest:
    """The whole request.

    Raises:
        ApiError: 400 for what can't be put as a chat request.
    """
    for field, why in STATEFUL.items():
        if getattr(asked, field) is not None:
            raise unsupported(field, why)
    if asked.background:
        raise unsupported("background", "an answer is given to the request that asks for it: stream it")
    return chat_request(
        {
            "model": asked.model,
            "messages": _messages(asked),
            "stream": asked.stream,
            "tools": [_tool(tool, f"tools.{place}") for place, tool in enumerate(asked.tools or [])] or None,
            "tool_choice": _choice(asked.tool_choice),
            "parallel_tool_calls": asked.parallel_tool_calls,
            "max_completion_tokens": asked.max_output_tokens,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "response_format": _format(asked.text.format) if asked.text and asked.text.format else None,
            "reasoning_effort": asked.reasoning.effort if asked.reasoning else None,
            "prompt_cache_key": asked.prompt_cache_key,
            "user": asked.user,
        }
    )


def _messages(asked: ResponsesRequest) -> list[Message]:
    instructions: list[Message] = []
    if asked.instructions:
        instructions.append({"role": "system", "content": asked.instructions})
    if isinstance(asked.input, str):
        return [*instructions, {"role": "user", "content": asked.input}]
    return [*instructions, *messages_of(asked.input)]


def _tool(tool: dict[str, Any], place: str) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise unsupported(
            f"{place}.type", f"{tool.get('type')!r} is a tool of OpenAI's; functions are what clawd calls"
        )
    if not text_of(tool, "name", place):
        raise refused(f"{place}.name", "a function needs a name")
    kept = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {key: tool[key] for key in kept if tool.get(key) is not None}}


def _choice(choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    if choice is None or (isinstance(choice, str) and choice in CHOICES):
        return choice
    if isinstance(choice, dict) and choice.get("type") == "function":
        name = text_of(choice, "name", "tool_choice")
        if not name:
            raise refused("tool_choice.name", "name the function")
        return {"type": "function", "function": {"name": name}}
    raise unsupported("tool_choice", f"send one of {', '.join(CHOICES)}, or a function by its name")


def _format(given: dict[str, Any]) -> dict[str, Any] | None:
    match given.get("type"):
        case "text":
            return None
        case "json_object":
            return {"type": "json_object"}
        case "json_schema" if isinstance(given.get("schema"), dict):
            kept = ("name", "description", "schema", "strict")
            return {
                "type": "json_schema",
                "json_schema": {key: given[key] for key in kept if given.get(key) is not None},
            }
    raise refused("text.format", 'send {"type": "text"}, {"type": "json_object"} or a json_schema with its schema')
