"""From a request to the Messages API to the chat request that means the same. Pure: no store, no model.

What has no counterpart is a 400 that names it, never left out in silence: images, documents, tools that Anthropic runs
or defines, an answer begun by the client. A failed tool's result, which chat has no mark for, says so in its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from clawd.model.messages import UNREADABLE
from clawd.server.anthropic.schema import MessagesRequest, PromptRequest, ToolChoice
from clawd.server.openai_chat.schema import ChatRequest
from clawd.server.translating import chat_request, objects, refused, text_of, text_part, unsupported
from clawd.store.records import Message

BILLING = "x-anthropic-billing-header:"
"""A header that Claude Code writes as a block of the system prompt. It differs in every request, so that no prompt
would ever be remembered; it is addressed to Anthropic, not to the model."""

SAYS_ERROR = re.compile(r"\s*\[?error\b", re.IGNORECASE)
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_of(asked: MessagesRequest) -> ChatRequest:
    """The whole request.

    Raises:
        ApiError: 400 for what can't be put as a chat request.
    """
    return chat_request(
        {
            **_prompt_fields(asked),
            "max_tokens": asked.max_tokens,
            "stream": asked.stream,
            "stop": asked.stop_sequences,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "top_k": asked.top_k,
            "user": asked.metadata.user_id if asked.metadata else None,
        }
    )


def prompt_of(asked: PromptRequest) -> ChatRequest:
    """A request with the same prompt.

    Raises:
        ApiError: 400 for what can't be put as a chat request.
    """
    return chat_request(_prompt_fields(asked))


def _prompt_fields(asked: PromptRequest) -> dict[str, Any]:
    choice = asked.tool_choice
    config = asked.output_config
    return {
        "model": asked.model,
        "messages": _messages(asked),
        "tools": [_tool(tool, place) for place, tool in enumerate(asked.tools or [])] or None,
        "tool_choice": _choice(choice) if choice else None,
        "parallel_tool_calls": False if choice and choice.disable_parallel_tool_use else None,
        # The API thinks only where it is asked to, and some templates think unless they are told not to.
        "chat_template_kwargs": {"enable_thinking": asked.thinking is not None and asked.thinking.type != "disabled"},
        "reasoning_effort": config.effort if config else None,
        "response_format": _format(config.format) if config and config.format else None,
    }


def _tool(tool: dict[str, Any], place: int) -> dict[str, Any]:
    where = f"tools.{place}"
    if tool.get("type", "custom") not in ("custom", None):
        raise unsupported(f"{where}.type", f"{tool['type']!r} is a tool of Anthropic's; send it with an input_schema")
    name = text_of(tool, "name", where)
    if not name:
        raise refused(f"{where}.name", "a tool needs a name")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise refused(f"{where}.input_schema", "send a JSON schema")
    function = {"name": name, "description": tool.get("description"), "parameters": schema}
    if isinstance(tool.get("strict"), bool):
        function["strict"] = tool["strict"]
    return {"type": "function", "function": {key: value for key, value in function.items() if value is not None}}


def _choice(choice: ToolChoice) -> str | dict[str, Any]:
    if choice.type != "tool":
        return CHOICES[choice.type]
    if not choice.name:
        raise refused("tool_choice.name", "name the tool")
    return {"type": "function", "function": {"name": choice.name}}


def _format(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("type") != "json_schema" or not isinstance(given.get("schema"), dict):
        raise refused("output_config.format", 'send {"type": "json_schema", "schema": {…}}')
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": given["schema"], "strict": True}}


def _messages(asked: PromptRequest) -> list[Message]:
    written: list[Message] = []
    system = _instructions(asked.system, "system")
    if system:
        written.append({"role": "system", "content": system})
    for place, message in enumerate(asked.messages):
        written += _message(message, f"messages.{place}")
    if written[-1]["role"] == "assistant":
        raise unsupported(
            f"messages.{len(asked.messages) - 1}.role",
            "an answer can't be begun by the client (prefill): let the last message be the user's",
        )
    return written


def _message(message: dict[str, Any], place: str) -> Iterator[Message]:
    match message.get("role"):
        case "user":
            yield from _user(_blocks(message.get("content"), f"{place}.content"), f"{place}.content")
        case "assistant":
            yield _assistant(_blocks(message.get("content"), f"{place}.content"), f"{place}.content")
        case "system":
            yield {"role": "system", "content": _instructions(message.get("content"), f"{place}.content")}
        case role:
            raise refused(f"{place}.role", f"{role!r} is none of user, assistant, system")


def _blocks(content: Any, place: str) -> list[dict[str, Any]]:
    return [text_part(content)] if isinstance(content, str) else objects(content, place)


def _instructions(content: Any, place: str) -> list[dict[str, str]]:
    blocks = _blocks(content, place)
    texts = [_text(block, f"{place}.{number}") for number, block in enumerate(blocks)]
    return [text_part(text) for text in texts if text and not text.startswith(BILLING)]


def _text(block: dict[str, Any], place: str) -> str:
    if block.get("type") != "text":
        kind = block.get("type")
        raise refused(place, f"a block of type {kind!r} came to a text model; send text", "unsupported_content")
    return text_of(block, "text", place)


def _user(blocks: list[dict[str, Any]], place: str) -> Iterator[Message]:
    """Tools' results are messages of their own; an empty message stays one."""
    parts: list[dict[str, str]] = []
    answered = False
    for number, block in enumerate(blocks):
        if block.get("type") == "tool_result":
            if parts:
                yield {"role": "user", "content": parts}
            yield _result(block, f"{place}.{number}")
            parts, answered = [], True
        else:
            parts.append(text_part(_text(block, f"{place}.{number}")))
    if parts or not answered:
        yield {"role": "user", "content": parts}


def _result(block: dict[str, Any], place: str) -> Message:
    blocks = _blocks(block.get("content"), f"{place}.content")
    text = "\n".join(_text(each, f"{place}.content.{number}") for number, each in enumerate(blocks))
    if block.get("is_error") is True and not SAYS_ERROR.match(text):
        text = f"Error: {text}".rstrip()
    return {"role": "tool", "tool_call_id": text_of(block, "tool_use_id", place), "content": text}


def _assistant(blocks: list[dict[str, Any]], place: str) -> Message:
    """An answer as it was: what a call interrupts is one text, as it was when it was given."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for number, block in enumerate(blocks):
        where = f"{place}.{number}"
        match block.get("type"):
            case "thinking":
                thoughts.append(text_of(block, "thinking", where))
            case "redacted_thinking":  # of another model, and nobody else can read it
                pass
            case "tool_use":
                calls.append(_call(block, where))
            case _:
                texts.append(_text(block, where))
    message: Message = {"role": "assistant", "content": "".join(texts)}
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: dict[str, Any], place: str) -> dict[str, Any]:
    name = text_of(block, "name", place)
    if not name:
        raise refused(f"{place}.name", "name the tool that was used")
    function = {"name": name, "arguments": arguments_of(block.get("input"))}
    return {"id": text_of(block, "id", place), "type": "function", "function": function}


def arguments_of(given: Any) -> str:
    """A call's arguments as the model wrote them, as far as an object tells: see `blocks.input_of`."""
    if given is None:
        return "{}"
    if isinstance(given, str):
        return given
    if isinstance(given, dict) and list(given) == [UNREADABLE] and isinstance(given[UNREADABLE], str):
        return str(given[UNREADABLE])
    return json.dumps(given, ensure_ascii=False)
