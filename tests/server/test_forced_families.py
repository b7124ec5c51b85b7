"""Forced calls and structured output through the Messages and Responses APIs, with the real model and the SDKs."""

from __future__ import annotations

import json

import anthropic
import pytest

from tests.server.live import Live

QUESTION = [{"role": "user", "content": "How is the weather in Oslo?"}]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "description": "Says what the weather is like.", "input_schema": CITY}
FUNCTION = {"type": "function", "name": "get_weather", "description": "x", "parameters": CITY, "strict": True}
ONE = {"type": "any", "disable_parallel_tool_use": True}


@pytest.mark.parametrize("choice", [{"type": "tool", "name": "get_weather"}, ONE])
def test_a_tool_must_be_used(live: Live, choice: dict) -> None:
    ask = {"model": "clawd", "max_tokens": 120, "messages": QUESTION, "tools": [WEATHER], "tool_choice": choice}
    with live.anthropic() as client:
        whole = client.messages.create(**ask)
        with client.messages.stream(**ask) as stream:
            streamed = stream.get_final_message()
    for message in (whole, streamed):
        (use,) = message.content
        assert (message.stop_reason, use.type) == ("tool_use", "tool_use")
        assert use.input in ({"city": "Oslo"}, {"city": "Rome"})


def test_a_tool_that_there_is_not(live: Live) -> None:
    with live.anthropic() as client, pytest.raises(anthropic.BadRequestError):
        choice = {"type": "tool", "name": "get_time"}
        client.messages.create(model="clawd", max_tokens=9, messages=QUESTION, tools=[WEATHER], tool_choice=choice)


def test_a_function_must_be_called(live: Live) -> None:
    choice = {"type": "function", "name": "get_weather"}
    with live.openai() as client:
        response = client.responses.create(model="clawd", input="Weather?", tools=[FUNCTION], tool_choice=choice)
    (call,) = response.output
    assert (response.status, call.type) == ("completed", "function_call")
    assert json.loads(call.arguments)["city"] in ("Oslo", "Rome")


def test_the_form_of_the_text(live: Live) -> None:
    with live.anthropic() as client:
        form = {"format": {"type": "json_schema", "schema": CITY}}
        message = client.messages.create(model="clawd", max_tokens=60, messages=QUESTION, output_config=form)
    with live.openai() as client:
        text = {"format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}}
        response = client.responses.create(model="clawd", input="A city?", text=text, max_output_tokens=60)
    for written in (message.content[0].text, response.output_text):
        assert json.loads(written)["city"] in ("Oslo", "Rome")
