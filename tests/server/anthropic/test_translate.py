"""A request to the Messages API as a chat request: what each part becomes, and what is refused by name."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from clawd.server.anthropic.blocks import input_of
from clawd.server.anthropic.schema import MessagesRequest, PromptRequest
from clawd.server.anthropic.translate import arguments_of, chat_of, prompt_of
from clawd.server.errors import ApiError
from clawd.server.openai_chat.messages import for_template

HI = {"role": "user", "content": "hi"}
TOOL = {"name": "get_weather", "description": "Says it.", "input_schema": {"type": "object", "properties": {}}}


def asked(**fields: object) -> MessagesRequest:
    return MessagesRequest.model_validate({"model": "clawd", "max_tokens": 9, "messages": [HI], **fields})


def rendered(**fields: object) -> list[dict]:
    return for_template(chat_of(asked(**fields)).messages)


def test_each_parameter_has_its_counterpart() -> None:
    chat = chat_of(
        asked(
            system="Be brief.",
            stop_sequences=["END"],
            temperature=0.5,
            top_p=0.9,
            top_k=7,
            stream=True,
            metadata={"user_id": "u-1"},
            tools=[{**TOOL, "cache_control": {"type": "ephemeral"}, "strict": True}],
            tool_choice={"type": "auto", "disable_parallel_tool_use": True},
            thinking={"type": "enabled", "budget_tokens": 1024},
            output_config={"effort": "low"},
        )
    )
    assert (chat.model, chat.max_tokens, chat.stop, chat.stream) == ("clawd", 9, ["END"], True)
    assert (chat.temperature, chat.top_p, chat.top_k, chat.user) == (0.5, 0.9, 7, "u-1")
    assert (chat.tool_choice, chat.parallel_tool_calls) == ("auto", False)
    function = {"name": "get_weather", "description": "Says it.", "parameters": TOOL["input_schema"], "strict": True}
    assert chat.tools == [{"type": "function", "function": function}]
    assert chat.template_arguments() == {"enable_thinking": True, "reasoning_effort": "low"}
    assert for_template(chat.messages) == [{"role": "system", "content": "Be brief."}, HI]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "get_weather"}, {"type": "function", "function": {"name": "get_weather"}}),
    ],
)
def test_choices_of_tools(given: dict, wanted: object) -> None:
    chat = chat_of(asked(tools=[TOOL], tool_choice=given))
    assert (chat.tool_choice, chat.parallel_tool_calls) == (wanted, None)


@pytest.mark.parametrize(
    ("thinking", "wanted"),
    [(None, False), ({"type": "disabled"}, False), ({"type": "adaptive"}, True), ({"type": "enabled"}, True)],
)
def test_a_model_thinks_only_where_it_is_asked_to(thinking: dict | None, wanted: bool) -> None:
    assert chat_of(asked(thinking=thinking)).template_arguments() == {"enable_thinking": wanted}


def test_a_schema_for_the_answer_is_handed_on() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    chat = chat_of(asked(output_config={"format": {"type": "json_schema", "schema": schema}}))
    wanted = {"type": "json_schema", "json_schema": {"name": "output", "schema": schema, "strict": True}}
    assert chat.model_dump(exclude_none=True, by_alias=True)["response_format"] == wanted


def test_the_system_prompt_in_blocks_without_the_billing_header() -> None:
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=fa690;"},
        {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief."},
    ]
    assert rendered(system=system) == [{"role": "system", "content": "Be kind.\nBe brief."}, HI]
    assert rendered(system=system[:1]) == rendered(system="") == rendered(system=None) == [HI]
    later = [HI, {"role": "assistant", "content": "Hello"}, {"role": "system", "content": "Now in French."}, HI]
    assert rendered(messages=later)[2] == {"role": "system", "content": "Now in French."}


def test_a_tool_loop_becomes_calls_and_tool_messages() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "xx"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Ösel"}},
                {"type": "tool_use", "id": "toolu_2", "name": "get_weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "is_error": True,
                    "content": [{"type": "text", "text": "no city"}, {"type": "text", "text": "given"}],
                },
                {"type": "text", "text": "Well?"},
            ],
        },
    ]
    calls = [
        {"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Ösel"}'}},
        {"id": "toolu_2", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
    ]
    assert rendered(messages=messages) == [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "rain"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "Error: no city\ngiven"},
        {"role": "user", "content": "Well?"},
    ]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, "Error:"),
        ("", "Error:"),
        ("ENOENT", "Error: ENOENT"),
        ("error: x", "error: x"),
        ("[Error] y", "[Error] y"),
    ],
)
def test_a_failed_tools_result_says_so(content: object, wanted: str) -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": content}
    assert rendered(messages=[{"role": "user", "content": [result]}])[0]["content"] == wanted
    fine = rendered(messages=[{"role": "user", "content": [{**result, "is_error": False}]}])[0]
    assert fine["content"] == (content or "")


def test_messages_that_stand_together_stay_apart() -> None:
    assert rendered(messages=[HI, HI]) == [HI, HI]  # a template that wants one gets one, as in chat
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]}
    assert [message["role"] for message in rendered(messages=[HI, result, HI, HI])] == ["user", "tool", "user", "user"]


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": ""}], [{"type": "text"}]])
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_nothing_to_say_renders(role: str, content: object) -> None:
    messages = rendered(messages=[HI, {"role": role, "content": content}, {"role": "user"}])
    assert all(isinstance(message["content"], str) for message in messages)


def test_a_message_without_a_type_of_content_is_as_good_as_an_empty_one() -> None:
    assert rendered(messages=[{"role": "user"}]) == [{"role": "user", "content": ""}]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, "{}"),
        ({}, "{}"),
        ({"city": "Oslo"}, '{"city": "Oslo"}'),
        ('{"city": "Os', '{"city": "Os'),
        ("", ""),
        ([1], "[1]"),
    ],
)
def test_inputs_in_the_history_become_arguments(given: object, wanted: str) -> None:
    block = {"type": "tool_use", "id": "t", "name": "f", "input": given}
    message = rendered(messages=[HI, {"role": "assistant", "content": [block]}, HI])[1]
    assert message["tool_calls"][0]["function"]["arguments"] == wanted


@pytest.mark.parametrize(
    "written", ['{"city": "Os', "look it up", "[1]", '{"x": NaN}', '{"x": 1e999}', '"\\ud83d"', "[" * 9999]
)
def test_what_no_object_can_hold_comes_back_as_it_was_written(written: str) -> None:
    shown = input_of(written)
    json.dumps(shown, ensure_ascii=False, allow_nan=False).encode()
    assert arguments_of(shown) == written


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages.0.content.0",
            "unsupported_content",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document"}]}]},
            "messages.0.content.0",
            "unsupported_content",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image"}]}]}]},
            "messages.0.content.0.content.0",
            "unsupported_content",
        ),
        ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content", "invalid_value"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages.0.content", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]},
            "messages.0.content.0.text",
            "invalid_value",
        ),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role", "invalid_value"),
        ({"messages": [HI, {"role": "assistant", "content": "It is"}]}, "messages.1.role", "unsupported_value"),
        (
            {"messages": [HI, {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}, HI]},
            "messages.1.content.0.name",
            "invalid_value",
        ),
        (
            {"messages": [HI, {"role": "assistant", "content": [{"type": "server_tool_use"}]}, HI]},
            "messages.1.content.0",
            "unsupported_content",
        ),
        ({"system": [{"type": "image"}]}, "system.0", "unsupported_content"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type", "unsupported_value"),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema", "invalid_value"),
        ({"tools": [{"name": "", "input_schema": {}}]}, "tools.0.name", "invalid_value"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name", "invalid_value"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format", "invalid_value"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_its_place(change: dict, param: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat_of(asked(**change))
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": None},
        {"max_tokens": 0},
        {"temperature": 1.5},
        {"messages": []},
        {"messages": "hi"},
        {"stop_sequences": ["x"] * 17},
        {"tool_choice": {"type": "some"}},
    ],
)
def test_what_the_api_forbids_is_refused(change: dict) -> None:
    with pytest.raises(ValidationError):
        asked(**change)


def test_unread_fields_are_named() -> None:
    given = asked(service_tier="auto", thinking={"type": "enabled", "budget_tokens": 9}, output_config={"x": 1})
    assert given.unknown_fields() == ["output_config.x", "service_tier", "thinking.budget_tokens"]


def test_counting_needs_no_limit_and_has_the_same_prompt() -> None:
    body = {"model": "clawd", "messages": [HI], "system": "Be brief.", "tools": [TOOL]}
    counted, answered = prompt_of(PromptRequest.model_validate(body)), chat_of(asked(**body))
    assert (counted.messages, counted.tools) == (answered.messages, answered.tools)
    assert counted.template_arguments() == answered.template_arguments()
