"""A request to the Responses API as a chat request: what each part becomes, and what is refused by name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from clawd.server.errors import ApiError
from clawd.server.openai_chat.messages import for_template
from clawd.server.openai_responses.schema import ResponsesRequest
from clawd.server.openai_responses.translate import chat_of

TOOL = {"type": "function", "name": "get_weather", "description": "Says it.", "parameters": {"type": "object"}}
HI = {"role": "user", "content": "hi"}


def asked(**fields: object) -> ResponsesRequest:
    return ResponsesRequest.model_validate({"model": "clawd", "input": "hi", **fields})


def rendered(*items: object, **fields: object) -> list[dict]:
    return for_template(chat_of(asked(input=list(items), **fields)).messages)


def call(name: str, arguments: object = "{}") -> dict:
    return {
        "type": "function_call",
        "id": f"fc_{name}",
        "call_id": f"call_{name}",
        "name": name,
        "arguments": arguments,
    }


def called(name: str, arguments: str = "{}") -> dict:
    return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": arguments}}


def output(name: str, text: object) -> dict:
    return {"type": "function_call_output", "call_id": f"call_{name}", "output": text}


def said(text: str) -> dict:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def thought(text: str) -> dict:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def test_each_parameter_has_its_counterpart() -> None:
    chat = chat_of(
        asked(
            instructions="Be brief.",
            tools=[{**TOOL, "strict": True}],
            tool_choice="auto",
            parallel_tool_calls=False,
            max_output_tokens=9,
            temperature=0.5,
            top_p=0.9,
            reasoning={"effort": "low"},
            prompt_cache_key="k",
            user="u",
            stream=True,
            store=True,
        )
    )
    assert (chat.model, chat.max_completion_tokens, chat.stream) == ("clawd", 9, True)
    assert (chat.temperature, chat.top_p, chat.user, chat.prompt_cache_key) == (0.5, 0.9, "u", "k")
    assert (chat.tool_choice, chat.parallel_tool_calls) == ("auto", False)
    function = {key: value for key, value in TOOL.items() if key != "type"}
    assert chat.tools == [{"type": "function", "function": {**function, "strict": True}}]
    assert chat.template_arguments() == {"reasoning_effort": "low"}
    assert chat.messages == [{"role": "system", "content": "Be brief."}, HI]


def test_a_function_can_be_asked_for_by_name() -> None:
    chat = chat_of(asked(tools=[TOOL], tool_choice={"type": "function", "name": "get_weather"}))
    assert chat.tool_choice == {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True}},
        ),
    ],
)
def test_the_form_of_the_text_is_handed_on(given: dict, wanted: dict | None) -> None:
    chat = chat_of(asked(text={"format": given}))
    assert chat.model_dump(exclude_none=True, by_alias=True).get("response_format") == wanted


def test_the_items_of_one_answer_are_one_message() -> None:
    items = [HI, thought("hm"), said("I look."), call("a"), call("b", '{"x": 1}'), output("a", "1"), output("b", "2")]
    assert rendered(*items, HI) == [
        HI,
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [called("a"), called("b", '{"x": 1}')],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "1"},
        {"role": "tool", "tool_call_id": "call_b", "content": "2"},
        HI,
    ]


def test_text_around_a_call_is_the_text_that_the_answer_had() -> None:
    (answer, _) = rendered(said("I look."), call("a"), said("Done."), HI)
    assert (answer["content"], answer["tool_calls"]) == ("I look.Done.", [called("a")])


def test_a_text_behind_a_text_is_another_answer() -> None:
    texts = [message.get("content") for message in rendered(said("one"), said("two"), thought("hm"), said("three"))]
    assert texts == ["one", "two", "three"]


def test_reasoning_of_another_model_leaves_no_trace() -> None:
    sealed = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "xx"}
    assert rendered(HI, sealed, HI) == [HI, HI]
    summed = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "short"}]}
    assert rendered(HI, summed, said("x"), HI)[1]["reasoning_content"] == "short"


def test_messages_of_every_role_and_form() -> None:
    part = {"type": "input_text", "text": "there"}
    assert rendered(
        {"type": "message", "role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, part]},
        {"role": "assistant", "content": "Hello"},
        {"role": "system", "content": [part]},
        output("a", [part, part]),
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi\nthere"},
        {"role": "assistant", "content": "Hello"},
        {"role": "system", "content": "there"},
        {"role": "tool", "tool_call_id": "call_a", "content": "there\nthere"},
    ]


@pytest.mark.parametrize("content", [None, "", [], [{"type": "input_text", "text": ""}], [{"type": "input_text"}]])
@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_nothing_to_say_renders(role: str, content: object) -> None:
    messages = rendered({"role": role, "content": content}, {"role": role}, output("a", content), HI)
    assert all(isinstance(message["content"], str) for message in messages)


@pytest.mark.parametrize("arguments", ['{"city": "Os', "", "[1]", None])
def test_arguments_stay_as_they_are(arguments: str | None) -> None:
    message = rendered(call("a", arguments), output("a", "x"))[0]
    assert message["tool_calls"][0]["function"]["arguments"] == (arguments or "")


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "unsupported_value"),
        ({"conversation": "conv_1"}, "conversation", "unsupported_value"),
        ({"prompt": {"id": "p"}}, "prompt", "unsupported_value"),
        ({"background": True}, "background", "unsupported_value"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "unsupported_value"),
        ({"tools": [{"type": "function"}]}, "tools.0.name", "invalid_value"),
        ({"tool_choice": "sometimes"}, "tool_choice", "unsupported_value"),
        ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice", "unsupported_value"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name", "invalid_value"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "invalid_value"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format", "invalid_value"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0", "unsupported_content"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input.0.role", "invalid_value"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input.0.content.0",
            "unsupported_content",
        ),
        ({"input": [output("a", [{"type": "input_file"}])]}, "input.0.output.0", "unsupported_content"),
        ({"input": [{"role": "user", "content": 7}]}, "input.0.content", "invalid_value"),
        ({"input": [{"type": "function_call", "call_id": "x"}]}, "input.0.name", "invalid_value"),
        ({"input": [call("a", {})]}, "input.0.arguments", "invalid_value"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_its_place(change: dict, param: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat_of(asked(**change))
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)


@pytest.mark.parametrize(
    "change", [{"input": []}, {"input": 7}, {"max_output_tokens": 0}, {"temperature": 3}, {"top_p": 0}]
)
def test_what_the_api_forbids_is_refused(change: dict) -> None:
    with pytest.raises(ValidationError):
        asked(**change)


def test_unread_fields_are_named() -> None:
    given = asked(include=["x"], reasoning={"effort": "low", "summary": "auto"}, text={"verbosity": "low"})
    assert given.unknown_fields() == ["include", "reasoning.summary", "text.verbosity"]
