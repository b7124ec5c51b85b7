"""Structured output and forced calls at the endpoint, with the real model and the openai client. Case E10.

What the model says under a grammar is seldom wise; that it has the form is what is tested.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import openai
import pytest
from pydantic import BaseModel, ConfigDict, Field

from tests.server.live import Live
from tests.server.scripted import ScriptedLive, scripted_server
from tests.server.test_chat import chunks_of
from tests.server.test_structure import EDIT, ODD, RUN, WEATHER, assert_valid, tool

ON = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False}
BY = {"type": "object", "properties": {"by": {"enum": list(range(1, 10))}}, "required": ["by"]}
BY["additionalProperties"] = False
SWITCH = tool("switch", ON)
RAISE = tool("raise", BY)
QUESTION = [{"role": "user", "content": "How is the weather in Oslo?"}]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedLive]:
    with scripted_server(tmp_path_factory.mktemp("scripted")) as server:
        yield server


class Colour(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=12)
    red: int = Field(ge=0, le=255)
    warm: bool


def form(schema: object, strict: bool | None = True) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}


def test_the_openai_client_parses_an_answer_into_its_own_type(live: Live) -> None:
    completion = live.openai().chat.completions.parse(
        model="clawd",
        messages=[{"role": "user", "content": "Describe the colour orange."}],
        response_format=Colour,
        temperature=0,
        max_tokens=200,
    )
    choice = completion.choices[0]
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, Colour)
    turn = live.turn(completion.id)
    assert live.services.vocabulary.is_end(turn.response_ids[-1])
    assert len(turn.logprobs) == len(turn.response_ids) and all(logprob <= 0 for logprob in turn.logprobs)
    assert turn.parameters["constrained"] == "response_format"


def test_a_streamed_answer_has_the_form(live: Live) -> None:
    ask = {"response_format": form(Colour.model_json_schema()), "temperature": 1, "seed": 5, "max_tokens": 200}
    chunks = chunks_of(live.chat(QUESTION, stream=True, **ask))
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    Colour.model_validate_json(text)
    assert live.turn(chunks[0]["id"]).response_text == text


def test_a_json_object_is_one(live: Live) -> None:
    for seed in range(2):
        reply = live.chat(
            "Write JSON.", response_format={"type": "json_object"}, temperature=1, seed=seed, max_tokens=100
        )
        choice = reply.json()["choices"][0]
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["message"]["content"]), dict)
        else:
            assert choice["message"]["content"].startswith("{")


def test_an_answer_that_is_cut_says_length(live: Live) -> None:
    choice = live.chat(QUESTION, response_format=form(Colour.model_json_schema()), max_tokens=3).json()["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["content"].startswith("{")


@pytest.mark.parametrize("format_type", ["text", None])
def test_a_format_of_text_changes_nothing(live: Live, format_type: str | None) -> None:
    free = live.chat(QUESTION).json()["choices"][0]["message"]["content"]
    wanted = {"type": format_type} if format_type else None
    assert live.chat(QUESTION, response_format=wanted).json()["choices"][0]["message"]["content"] == free


@pytest.mark.parametrize(
    ("response_format", "code", "said"),
    [
        (form({"not": {"type": "string"}}), "unsupported_schema", "not"),
        (form({"type": "string", "pattern": "(?!x)y"}, strict=False), "unsupported_schema", "look-around"),
        (form({"type": 5}, strict=None), "unsupported_schema", "type"),
        (form({"$ref": "https://example.com/x"}), "unsupported_schema", ""),
        (form({"enum": ["x" * 300_000]}), "unsupported_schema", "more than"),
        (form(None), "invalid_value", "schema"),
        (form([1]), "invalid_value", ""),
        ({"type": "json_schema"}, "invalid_value", "schema"),
        ({"type": "grammar"}, "invalid_value", ""),
        ("json_object", "invalid_value", ""),
    ],
)
def test_a_format_that_cannot_be_kept_is_refused(live: Live, response_format: object, code: str, said: str) -> None:
    reply = live.chat(QUESTION, response_format=response_format)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (400, code)
    assert error["param"].startswith("response_format") and said in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "switch"}}])
def test_a_forced_call_is_one(live: Live, choice: object, stream: bool) -> None:
    ask = {
        "model": "clawd",
        "messages": QUESTION,
        "tools": [SWITCH, RAISE],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_tokens": 100,
    }
    client = live.openai()
    if stream:
        with client.chat.completions.stream(**ask) as events:
            completion = events.get_final_completion()
    else:
        completion = client.chat.completions.create(**ask)
    (choice_,) = completion.choices
    (call,) = choice_.message.tool_calls
    assert (choice_.finish_reason, choice_.message.content or "") == ("tool_calls", "")
    arguments = json.loads(call.function.arguments)
    if call.function.name == "switch":
        assert arguments.keys() == {"on"} and isinstance(arguments["on"], bool)
    else:
        assert (call.function.name, choice) == ("raise", "required") and arguments["by"] in range(1, 10)
    turn = live.turn(completion.id)
    assert turn.response_text.count("<tool_call>") == 1
    assert turn.parameters["constrained"] == "tool_choice"


SAID = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "C"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "edit", "arguments": {"at": "abc", "lines": [true, false]}}\n</tool_call>'
)


def test_forced_calls_are_the_same_whole_and_streamed(scripted: ScriptedLive) -> None:
    (ids, _) = scripted.engine.say(SAID, SAID)
    ask = {"tools": [WEATHER, EDIT], "tool_choice": "required", "max_tokens": 300}
    reply = scripted.live.chat(QUESTION, **ask).json()
    whole = reply["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["name"] for call in whole] == ["get_weather", "edit"]
    for call in whole:
        assert_valid(call["function"]["name"], call["function"]["arguments"])
    assert scripted.live.turn(reply["id"]).response_ids[:-1] == ids  # the grammar let all of it pass
    told = ["", ""]
    for chunk in chunks_of(scripted.live.chat(QUESTION, stream=True, **ask)):
        for piece in chunk["choices"][0]["delta"].get("tool_calls", []):
            told[piece["index"]] += piece["function"].get("arguments", "")
    assert told == [call["function"]["arguments"] for call in whole]


def test_a_model_that_wants_to_say_something_else_calls_all_the_same(scripted: ScriptedLive) -> None:
    scripted.engine.say(f"Let me see. {SAID}")
    reply = scripted.live.chat(QUESTION, tools=[SWITCH], tool_choice="required", max_tokens=300).json()
    text = scripted.live.turn(reply["id"]).response_text
    assert '<tool_call>\n{"name": "switch", "arguments": '.startswith(text[:20])


def test_a_stop_string_does_not_break_a_forced_call(live: Live) -> None:
    reply = live.chat(QUESTION, tools=[RUN], tool_choice="required", stop=["\n", "{"], max_tokens=40).json()
    assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "run"


@pytest.mark.parametrize("choice", ["auto", "required", None])
def test_a_strange_schema_is_served(live: Live, choice: str | None) -> None:
    free = {"type": "function", "function": {"name": "free", "strict": True, "parameters": {"type": "object"}}}
    reply = live.chat(QUESTION, tools=[ODD, free], tool_choice=choice, max_tokens=40)
    assert reply.status_code == 200
    if choice == "required":
        calls = reply.json()["choices"][0]["message"]["tool_calls"]
        assert calls[0]["function"]["name"] in ("odd", "free")
        assert live.services.structure.loosened["not at all"] >= 1
        assert "clawd_schemas_loosened_total" in live.http.get("/metrics").text


def test_with_tools_and_a_format_both_are_possible(live: Live) -> None:
    reply = live.chat(QUESTION, tools=[RUN], response_format=form(Colour.model_json_schema()), max_tokens=120).json()
    message = reply["choices"][0]["message"]
    if message.get("tool_calls"):
        assert message["tool_calls"][0]["function"]["name"] == "run"
    else:
        assert message["content"].startswith("{")


def test_many_forms_at_once_do_not_disturb_each_other(live: Live) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        schema = {"type": "object", "properties": {f"key{number}": {"const": number}}, "required": [f"key{number}"]}
        schema["additionalProperties"] = False
        reply = live.chat(QUESTION, response_format=form(schema), temperature=1, seed=number, max_tokens=60)
        answers[number] = reply.json()["choices"][0]["message"]["content"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: json.loads(text) for number, text in answers.items()} == {n: {f"key{n}": n} for n in range(6)}


def test_biases_forbid_and_force_tokens(live: Live) -> None:
    vocabulary = live.services.vocabulary
    free = live.turn(live.chat(QUESTION).json()["id"]).response_ids
    bans = {str(token): -100 for token in set(free)}
    other = live.turn(live.chat(QUESTION, logit_bias=bans).json()["id"])
    assert not set(other.response_ids) & set(free)
    token = vocabulary.tokenise(" blue")[0]
    client = live.openai()
    forced = client.chat.completions.create(
        model="clawd", messages=QUESTION, logit_bias={str(token): 100}, max_tokens=4, temperature=1
    )
    assert forced.choices[0].message.content == " blue" * 4
    assert live.turn(forced.id).logprobs[0] < -1  # of the model's own distribution


def test_a_bias_works_within_a_form(live: Live) -> None:
    vocabulary = live.services.vocabulary
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    for letter in ("x", "y"):
        bias = {
            str(token): 50
            for token in range(vocabulary.size)
            if vocabulary.token_bytes(token).strip(b'"} ') == letter.encode()
        }
        reply = live.chat(QUESTION, response_format=form(schema), logit_bias=bias, max_tokens=60).json()
        assert json.loads(reply["choices"][0]["message"]["content"])["a"] == letter


@pytest.mark.parametrize("bias", [{"99999999": 1}, {"-1": 1}, {"x": 1}, {"5": 101}, {"5": "much"}, [5]])
def test_biases_that_make_no_sense_are_refused(live: Live, bias: object) -> None:
    reply = live.chat(QUESTION, logit_bias=bias)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_value")
    assert reply.json()["error"]["param"].startswith("logit_bias")


def test_the_openai_client_raises_its_own_error(live: Live) -> None:
    with pytest.raises(openai.BadRequestError, match="can't be enforced"):
        live.openai().chat.completions.create(
            model="clawd", messages=QUESTION, response_format=form({"type": "object", "if": {}, "then": {}})
        )
