"""Structured output and forced calls at the endpoint, with the real model and the openai client. Case E10.

What the model says under a grammar is seldom wise; that it has the form is what is tested.
"""

from __future__ import annotations

import json
import threading

import openai
import pytest
from pydantic import BaseModel, ConfigDict, Field

from clawd.model.replies.deltas import Reply
from tests.server.live import Live
from tests.server.test_chat import chunks_of
from tests.server.test_structure import EDIT, ODD, RUN, WEATHER, assert_valid

QUESTION = [{"role": "user", "content": "How is the weather in Oslo?"}]


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


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_streamed_answer_in_a_form_is_the_whole_one(live: Live, temperature: float) -> None:
    schema = Colour.model_json_schema()
    ask = {"response_format": form(schema), "temperature": temperature, "seed": 5, "max_tokens": 200}
    whole = live.chat(QUESTION, **ask).json()["choices"][0]["message"]["content"]
    chunks = chunks_of(live.chat(QUESTION, stream=True, **ask))
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == whole
    Colour.model_validate_json(whole)


def test_a_json_object_is_one(live: Live) -> None:
    for seed in range(3):
        reply = live.chat(
            "Write JSON.", response_format={"type": "json_object"}, temperature=1, seed=seed, max_tokens=300
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


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "edit"}}])
def test_a_forced_call_arrives_whole_and_streamed(live: Live, choice: object) -> None:
    client = live.openai()
    ask = {
        "model": "clawd",
        "messages": QUESTION,
        "tools": [WEATHER, EDIT],
        "tool_choice": choice,
        "temperature": 1,
        "seed": 2,
        "max_tokens": 300,
    }
    completion = client.chat.completions.create(**ask)
    whole = completion.choices[0]
    assert whole.finish_reason == "tool_calls"
    assert not whole.message.content
    for call in whole.message.tool_calls:
        assert_valid(call.function.name, call.function.arguments)
    if choice != "required":
        assert [call.function.name for call in whole.message.tool_calls] == ["edit"]
    assert live.turn(completion.id).parameters["constrained"] == "tool_choice"

    chunks = list(client.chat.completions.create(**ask, stream=True))
    pieces = [piece for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or []]
    # Against what the stream's own turn says: two long runs of one seed may differ, as llama.cpp's rounding depends on
    # which cells are in use.
    turn = live.turn(chunks[0].id)
    parser = live.services.replies.parser([WEATHER, EDIT], turn.prompt_ids)
    calls = Reply.of([*parser.feed(turn.response_text), *parser.finish()]).tool_calls()
    assert calls
    for index, call in enumerate(calls):
        own = [piece.function for piece in pieces if piece.index == index]
        assert [function.name for function in own if function.name] == [call["function"]["name"]]
        assert "".join(function.arguments or "" for function in own) == call["function"]["arguments"]
        if chunks[-1].choices[0].finish_reason == "tool_calls":
            assert_valid(call["function"]["name"], call["function"]["arguments"])


def test_one_call_means_one(live: Live) -> None:
    for seed in range(3):
        reply = live.chat(
            QUESTION,
            tools=[WEATHER, RUN],
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=1,
            seed=seed,
            max_tokens=400,
        )
        (call,) = reply.json()["choices"][0]["message"]["tool_calls"]
        assert live.turn(reply.json()["id"]).response_text.count("<tool_call>") == 1
        if reply.json()["choices"][0]["finish_reason"] == "tool_calls":
            assert_valid(call["function"]["name"], call["function"]["arguments"])


def test_a_stop_string_does_not_break_a_forced_call(live: Live) -> None:
    reply = live.chat(QUESTION, tools=[RUN], tool_choice="required", stop=["\n", "{"], max_tokens=200).json()
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
    reply = live.chat(QUESTION, tools=[RUN], response_format=form(Colour.model_json_schema()), max_tokens=300).json()
    message = reply["choices"][0]["message"]
    if message.get("tool_calls"):
        assert message["tool_calls"][0]["function"]["name"] == "run"
    else:
        Colour.model_validate_json(message["content"])


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
