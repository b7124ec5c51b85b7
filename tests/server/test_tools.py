"""Tool calls and reasoning at the endpoint, with real clients. Cases E5, E7, E11 and T2.

The server is real and so is the model's vocabulary; what the model says is prepared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.config import ModelSettings, Settings
from clawd.learner.process import renderer
from tests.server.scripted import ScriptedLive, scripted_server
from tests.tiny_gguf import write_tiny_model

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Says what the weather is like.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
QUESTION = [{"role": "user", "content": "How is the weather in Oslo and in Rome?"}]
TWO_CALLS = (
    "I look it up.\n"
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
)
TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<tool_call>{% endif %}"
    "effort={{ reasoning_effort }} "
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}"
    "{% endif %}"
)
"""Of a model that knows tools and opens the reasoning itself."""


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedLive]:
    with scripted_server(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedLive]:
    """A tiny model whose tags are control tokens."""
    folder = tmp_path_factory.mktemp("thinking")
    control = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<other>")
    path = write_tiny_model(folder / "tiny.gguf", context=2048, template=TEMPLATE, control=control)
    with scripted_server(folder / "home", Settings(model=ModelSettings(path=path))) as server:
        yield server


def arguments_of(calls: list) -> list:
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


def test_two_calls_arrive_whole_and_as_true_deltas(scripted: ScriptedLive) -> None:
    client = scripted.live.openai()
    scripted.engine.say(TWO_CALLS, TWO_CALLS)
    ask = {"model": "clawd", "messages": QUESTION, "tools": [WEATHER], "tool_choice": "auto"}
    whole = client.chat.completions.create(**ask).choices[0]
    assert whole.finish_reason == "tool_calls"
    assert whole.message.content == "I look it up."
    assert arguments_of(whole.message.tool_calls) == [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Rome"}),
    ]
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", call.id) for call in whole.message.tool_calls)
    assert len({call.id for call in whole.message.tool_calls}) == 2

    chunks = list(client.chat.completions.create(**ask, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.message.content
    pieces = [piece for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or []]
    for index, call in enumerate(whole.message.tool_calls):
        own = [piece for piece in pieces if piece.index == index]
        assert [piece.function.name for piece in own if piece.function.name] == ["get_weather"]
        assert [piece.type for piece in own if piece.type] == ["function"]
        assert len([piece.id for piece in own if piece.id]) == 1
        assert own[0].id and own[0].function.name
        assert len([piece for piece in own if piece.function.arguments]) > 2
        assert "".join(piece.function.arguments or "" for piece in own) == call.function.arguments
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["tool_calls"]


def test_the_openai_clients_own_stream_helper_puts_the_calls_together(scripted: ScriptedLive) -> None:
    scripted.engine.say(TWO_CALLS)
    with scripted.live.openai().chat.completions.stream(model="clawd", messages=QUESTION, tools=[WEATHER]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert [call.function.arguments for call in message.tool_calls] == ['{"city": "Oslo"}', '{"city": "Rome"}']


def test_the_store_keeps_what_the_model_wrote(scripted: ScriptedLive) -> None:
    (ids,) = scripted.engine.say(TWO_CALLS)
    reply = scripted.live.chat(QUESTION, tools=[WEATHER], max_tokens=500).json()
    turn = scripted.live.turn(reply["id"])
    assert turn.response_ids[:-1] == ids
    assert turn.response_text == TWO_CALLS
    assert (turn.finish_reason, turn.state) == ("stop", "waiting")
    assert turn.tools == [WEATHER]


def test_a_model_without_tools_is_told_of_them_and_the_learner_renders_the_same(scripted: ScriptedLive) -> None:
    scripted.engine.say("ok")
    messages = [{"role": "system", "content": "Be brief."}, *QUESTION]
    turn = scripted.live.turn(scripted.live.chat(messages, tools=[WEATHER]).json()["id"])
    prompt = scripted.live.services.vocabulary.text(turn.prompt_ids, special=True)
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\n# Tools")
    assert '"description": "Says what the weather is like."' in prompt
    assert '{"name": "function name", "arguments": {"argument name": "value"}}' in prompt
    render = renderer(scripted.live.services.vocabulary)
    assert render(turn.messages, turn.tools, turn.parameters) == turn.prompt_ids


def test_only_the_first_call_is_kept_if_one_is_wanted(scripted: ScriptedLive) -> None:
    scripted.engine.say(TWO_CALLS, TWO_CALLS)
    more = {"tools": [WEATHER], "parallel_tool_calls": False, "max_tokens": 500}
    whole = scripted.live.chat(QUESTION, **more).json()["choices"][0]
    assert [call["function"]["arguments"] for call in whole["message"]["tool_calls"]] == ['{"city": "Oslo"}']
    streamed = scripted.live.chat(QUESTION, stream=True, **more).text
    assert '"index":1' not in streamed and '"finish_reason":"tool_calls"' in streamed


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>look it up</tool_call>",
        '<tool_call>{"name": "get_weather", "argum',
        '<tool_call>{"name": "\\ud83d", "arguments": {}}</tool_call>',
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_malformed_call_is_text(scripted: ScriptedLive, text: str, stream: bool) -> None:
    scripted.engine.say(text)
    reply = scripted.live.chat(QUESTION, tools=[WEATHER], max_tokens=500, stream=stream)
    assert reply.status_code == 200
    if not stream:
        choice = reply.json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (text, "stop")
        assert "tool_calls" not in choice["message"]
    else:
        assert "tool_calls" not in reply.text and reply.text.rstrip().endswith("[DONE]")


def test_half_a_surrogate_in_arguments_is_no_error(scripted: ScriptedLive) -> None:
    text = '<tool_call>{"arguments": {"city": "\\ud83d"}, "name": "get_weather"}</tool_call>'
    scripted.engine.say(text, text)
    for stream in (False, True):
        reply = scripted.live.chat(QUESTION, tools=[WEATHER], max_tokens=500, stream=stream)
        assert reply.status_code == 200 and "get_weather" in reply.text and "engine_failed" not in reply.text


def test_a_call_that_is_cut_says_length(scripted: ScriptedLive) -> None:
    scripted.engine.say(TWO_CALLS)
    choice = scripted.live.chat(QUESTION, tools=[WEATHER], max_tokens=28).json()["choices"][0]
    assert choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "length"


def test_a_choice_of_none_hides_the_tools(scripted: ScriptedLive) -> None:
    scripted.engine.say(TWO_CALLS)
    reply = scripted.live.chat(QUESTION, tools=[WEATHER], tool_choice="none", max_tokens=500).json()
    assert reply["choices"][0]["message"]["content"] == TWO_CALLS
    turn = scripted.live.turn(reply["id"])
    assert turn.tools is None
    assert "get_weather" not in scripted.live.services.vocabulary.text(turn.prompt_ids)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tool_choice": "required", "tools": []}, "invalid_value"),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "invalid_value"),
        ({"tool_choice": {"type": "allowed_tools"}}, "invalid_value"),
        ({"tool_choice": "sometimes"}, "invalid_value"),
        ({"tools": [{"type": "function"}]}, "invalid_value"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "invalid_value"),
        ({"tools": ["get_weather"]}, "invalid_value"),
        ({"chat_template_kwargs": {"messages": []}}, "invalid_value"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "invalid_value"),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "invalid_value"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}]}, "invalid_value"),
    ],
)
def test_what_cannot_be_kept_is_refused(scripted: ScriptedLive, change: dict, code: str) -> None:
    body = {"model": "clawd", "messages": QUESTION, "tools": [WEATHER], **change}
    reply = scripted.live.http.post("/v1/chat/completions", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, code)


SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "pattern": "\\S", "maxLength": 10**9},
        "b": {"type": 5, "anyOf": "none", "properties": {"c": {"additionalProperties": True}}},
    },
}


def test_a_strange_schema_is_served(scripted: ScriptedLive) -> None:
    tool = {"type": "function", "function": {"name": "odd", "parameters": SCHEMA, "strict": True}}
    assert scripted.live.chat(QUESTION, tools=[tool], max_tokens=1).status_code == 200


def call(number: int, arguments: object) -> dict:
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


@pytest.mark.parametrize("which", ["scripted", "thinking"])
@pytest.mark.parametrize("arguments", ['{"city": "Oslo"}', '{"city": "Os', "", "[1]", None, {"city": "Oslo"}])
def test_a_history_with_calls_renders_and_is_stable(
    which: str, arguments: object, request: pytest.FixtureRequest
) -> None:
    server: ScriptedLive = request.getfixturevalue(which)
    messages: list[dict] = [{"role": "user", "content": f"{which} {arguments!r}"}]
    before: list[int] = []
    sessions = set()
    for number in range(5):
        server.engine.say("Done.")
        reply = server.live.chat(messages, tools=[WEATHER])
        assert reply.status_code == 200, reply.text
        turn = server.live.turn(reply.json()["id"])
        sessions.add(turn.session_id)
        assert turn.prompt_ids[: len(before)] == before
        before = turn.prompt_ids[
            : -len(server.live.services.vocabulary.tokenise("<|im_start|>assistant\n", parse_special=True))
        ]
        messages += [
            reply.json()["choices"][0]["message"],
            {"role": "user", "content": "And now?"},
            {"role": "assistant", "content": None, "tool_calls": [call(number, arguments)]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": f"It rains, {number}."},
        ]
    assert len(sessions) == 1
    text = server.live.services.vocabulary.text(before, special=True)
    assert text.count("get_weather") >= 4
    assert text.count("It rains, ") == 4


def test_a_tool_loop_is_one_session_whatever_the_client_does_to_ids_and_arguments(scripted: ScriptedLive) -> None:
    messages: list[dict] = [{"role": "user", "content": "What about the weather, in a loop?"}]
    turns = []
    for number in range(3):
        scripted.engine.say(f"<think>hm {number}</think>{TWO_CALLS}")
        reply = scripted.live.chat(messages, tools=[WEATHER], max_tokens=500).json()
        turns.append(scripted.live.turn(reply["id"]))
        answer = reply["choices"][0]["message"]
        calls = [
            {
                "id": c["id"].replace("_", ""),
                "type": "function",
                "function": {
                    "name": c["function"]["name"],
                    "arguments": json.dumps(json.loads(c["function"]["arguments"]), separators=(",", ":")),
                },
            }
            for c in answer["tool_calls"]
        ]
        messages.append({"role": "assistant", "content": answer["content"], "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": f"sunny {number}"} for c in calls]
    assert len({turn.session_id for turn in turns}) == 1
    first = scripted.live.store.turns.get(turns[0].id)
    assert first.state == "judging"
    assert [message["content"] for message in first.next_state] == ["sunny 0", "sunny 0"]


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nhm\n</think>\n\nIt rains.", "hm", "It rains."),
        ("<think>never closed", "never closed", ""),
        ("It rains.", None, "It rains."),
    ],
)
def test_reasoning_comes_apart_and_the_stored_ids_are_raw(
    scripted: ScriptedLive, text: str, reasoning: str | None, content: str
) -> None:
    (ids, _) = scripted.engine.say(text, text)
    reply = scripted.live.chat(QUESTION, max_tokens=500).json()
    message = reply["choices"][0]["message"]
    assert (message.get("reasoning_content"), message["content"]) == (reasoning, content)
    turn = scripted.live.turn(reply["id"])
    assert (turn.response_ids[:-1], turn.response_text) == (ids, text)
    stream = scripted.live.chat(QUESTION, max_tokens=500, stream=True).text
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in stream.splitlines() if line.startswith("data: {")]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == (reasoning or "")
    assert "".join(delta.get("content", "") for delta in deltas) == content


def test_reasoning_that_the_template_opens_and_tags_that_are_control_tokens(thinking: ScriptedLive) -> None:
    written = 'hm</think>\n<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call><other>'
    (ids,) = thinking.engine.say(written)
    reply = thinking.live.chat(
        QUESTION,
        tools=[WEATHER],
        max_tokens=500,
        chat_template_kwargs={"enable_thinking": True},
        reasoning_effort="high",
    ).json()
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["reasoning_content"] == "hm"
    assert choice["message"]["content"] is None  # the other control token stays hidden
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Oslo"}'
    turn = thinking.live.turn(reply["id"])
    assert turn.response_ids[:-1] == ids
    assert turn.response_text == written.removesuffix("<other>")
    prompt = thinking.live.services.vocabulary.text(turn.prompt_ids, special=True)
    assert "effort=high" in prompt and prompt.endswith("<|im_start|>assistant\n<think>\n")
    assert turn.parameters["template_arguments"] == {"enable_thinking": True, "reasoning_effort": "high"}
    render = renderer(thinking.live.services.vocabulary)
    assert render(turn.messages, turn.tools, turn.parameters) == turn.prompt_ids


def test_without_tools_a_control_token_of_calls_stays_hidden(thinking: ScriptedLive) -> None:
    thinking.engine.say("<tool_call>a")
    assert thinking.live.chat(QUESTION).json()["choices"][0]["message"]["content"] == "a"


def test_the_form_of_replies_can_be_set(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", context=2048)
    settings = Settings(model=ModelSettings(path=path, reply_format="mistral"))
    with scripted_server(tmp_path / "home", settings) as server:
        assert server.live.http.get("/clawd/v1/status").json()["model"]["reply_format"] == "mistral"
        server.engine.say('[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}')
        message = server.live.chat(QUESTION, tools=[WEATHER], max_tokens=500).json()["choices"][0]["message"]
        assert message["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
