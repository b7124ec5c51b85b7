"""Whatever a client sends: a chat request that renders, or a 400. Nothing in a body makes a translator fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from clawd.model.messages import TemplateForm
from clawd.model.template import ChatTemplate
from clawd.server.anthropic import translate as anthropic
from clawd.server.anthropic.schema import MessagesRequest
from clawd.server.errors import ApiError
from clawd.server.openai_chat.messages import for_template
from clawd.server.openai_chat.schema import ChatRequest
from clawd.server.openai_responses import translate as openai_responses
from clawd.server.openai_responses.schema import ResponsesRequest
from tests.tiny_gguf import CHATML

Translate = Callable[[dict[str, Any]], ChatRequest]
FORM = TemplateForm(ChatTemplate(CHATML))

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.text("aé\ud800 {", max_size=4), st.just([]), st.just({})
)
TEXT = st.text('ab {}"\n', max_size=6)


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 29).flatmap(lambda number: JUNK if number == 29 else usual)


SCALAR = mostly(TEXT)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def kinds(*names: str) -> st.SearchStrategy[Any]:
    return mostly(st.sampled_from(names))


def lists(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return mostly(st.one_of(st.lists(mostly(item), max_size=3), TEXT))


BLOCK = some(
    type=kinds("text", "thinking", "redacted_thinking", "tool_use", "tool_result"),
    text=SCALAR,
    thinking=SCALAR,
    id=SCALAR,
    name=SCALAR,
    input=st.one_of(SCALAR, some(city=SCALAR, unreadable_arguments=SCALAR)),
    tool_use_id=SCALAR,
    is_error=mostly(st.booleans()),
    content=lists(some(type=kinds("text", "text", "text", "image"), text=SCALAR)),
)
MESSAGES = some(
    system=lists(some(type=kinds("text"), text=SCALAR)),
    messages=st.lists(some(role=kinds("user", "assistant", "system"), content=lists(BLOCK)), min_size=1, max_size=4),
    tools=lists(some(type=kinds("custom"), name=SCALAR, description=SCALAR, input_schema=mostly(some()))),
    tool_choice=some(type=kinds("auto", "any", "tool", "none"), name=SCALAR),
    thinking=some(type=kinds("enabled", "disabled")),
    output_config=some(effort=SCALAR, format=some(type=kinds("json_schema"), schema=mostly(some()))),
)
PART = some(type=kinds("input_text", "output_text", "refusal"), text=SCALAR, refusal=SCALAR)
ITEM = some(
    type=kinds("message", "reasoning", "function_call", "function_call_output"),
    role=kinds("user", "assistant", "developer"),
    content=lists(PART),
    summary=lists(PART),
    call_id=SCALAR,
    name=SCALAR,
    arguments=SCALAR,
    output=lists(PART),
)
RESPONSES = some(
    input=st.one_of(st.lists(ITEM, min_size=1, max_size=5), TEXT),
    instructions=SCALAR,
    tools=lists(some(type=kinds("function"), name=SCALAR, parameters=mostly(some()), strict=JUNK)),
    tool_choice=st.one_of(kinds("auto", "required"), some(type=kinds("function"), name=SCALAR)),
    text=some(format=some(type=kinds("text", "json_object", "json_schema"), schema=mostly(some()))),
    reasoning=some(effort=SCALAR),
)


def holds(translate: Translate, body: dict[str, Any]) -> None:
    try:
        chat = translate(json.loads(json.dumps(body)))
    except (ValidationError, ApiError) as error:
        assert getattr(error, "status", 400) == 400
        return
    messages = for_template(chat.messages)
    FORM.adapt(messages, chat.tools)
    assert all(isinstance(message["content"], str) for message in messages)
    json.dumps(messages, ensure_ascii=False).encode()


def by_messages(body: dict[str, Any]) -> ChatRequest:
    whole = {"model": "clawd", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}], **body}
    return anthropic.chat_of(MessagesRequest.model_validate(whole))


def by_responses(body: dict[str, Any]) -> ChatRequest:
    return openai_responses.chat_of(ResponsesRequest.model_validate({"model": "clawd", "input": "hi", **body}))


@settings(deadline=None, max_examples=400)
@given(MESSAGES)
def test_the_messages_api(body: dict[str, Any]) -> None:
    holds(by_messages, body)


@settings(deadline=None, max_examples=400)
@given(RESPONSES)
def test_the_responses_api(body: dict[str, Any]) -> None:
    holds(by_responses, body)


@pytest.mark.parametrize("translate", [by_messages, by_responses])
@pytest.mark.parametrize("depth", [100, 450, 900, 5000])
def test_deep_nesting(translate: Translate, depth: int) -> None:
    deep: Any = {}
    for _ in range(depth):
        deep = {"x": deep}
    call = {"type": "tool_use", "id": "t", "name": "f", "input": deep}
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": "hi"},
    ]
    for body in (
        {"messages": history, "input": "hi"},
        {"tools": [{"type": "function", "name": "f", "parameters": deep}]},
    ):
        with suppress(ValidationError, ApiError):
            for_template(translate(body).messages)
