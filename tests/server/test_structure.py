"""Every family's forced call, written at random under its grammar, is read back by that family's own parser.

Twice: with a vocabulary in which the tags are control tokens, and with one that spells them out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clawd.model.replies.deltas import Reply
from clawd.model.replies.families import FAMILIES, MOST_CALLS, ReplyFormat
from clawd.model.vocab import Vocabulary
from clawd.server.engine.constraint import Compiler
from clawd.server.errors import ApiError
from clawd.server.openai_chat.schema import ChatRequest
from clawd.server.structure import Structure
from tests.server.engine.writing import Writer
from tests.tiny_gguf import CHATML, write_tiny_model


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **({"parameters": parameters} if parameters else {})}}


WEATHER = tool(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Which one."},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"enum": ["C", "F"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
)
EDIT = tool(
    "edit",
    {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/at"}, "lines": {"type": "array", "items": {"type": "boolean"}}},
        "required": ["at", "lines"],
        "additionalProperties": False,
        "$defs": {"at": {"type": "string", "pattern": "^[a-c]{2,4}$"}},
    },
)
RUN = tool("run")
ODD = tool(  # E10
    "odd",
    {
        "type": "object",
        "properties": {
            "a": {"type": "string", "pattern": "\\S", "maxLength": 10**9},
            "b": {"type": 5, "anyOf": "none", "properties": {"c": {"additionalProperties": True}}},
            "d": {"type": "string", "pattern": "(?<=x)y", "format": "colour"},
        },
    },
)
PARTLY = tool(
    "partly",
    {
        "type": "object",
        "properties": {"n": {"type": "integer", "not": {"const": 3}, "multipleOf": 99_999}},
        "required": ["n"],
    },
)
TOOLS = [WEATHER, EDIT, RUN]
CONTROL = {
    "hermes": ["<tool_call>", "</tool_call>", "<think>", "</think>"],
    "qwen_coder": ["<tool_call>", "</tool_call>", "<think>", "</think>"],
    "llama3": ["<|python_tag|>"],
    "mistral": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"],
    "gemma": ["<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"],
    "harmony": ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"],
}
PAIRS = {
    "hermes": (("", "</think>"),),
    "qwen_coder": (("", "</think>"), ("<parameter=", "</parameter>")),
    "mistral": (("", "[/THINK]"),),
    "gemma": (("", "<channel|>"),),
    "harmony": (("analysis", "<|end|>"),),
}
OPENED = {"hermes": "<think>", "qwen_coder": "<think>", "mistral": "[THINK]", "gemma": "<|channel>thought"}


@dataclass
class Family:
    replies: ReplyFormat
    structure: Structure
    vocabulary: Vocabulary
    writer: Writer

    def prompt(self, end: str = "") -> list[int]:
        return self.vocabulary.tokenise(f"hi<|im_start|>assistant\n{end}", parse_special=True)

    def reply(self, seed: int, prompt: list[int] | None = None, **fields: Any) -> Reply:
        """What a random answer says."""
        chat = ChatRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields})
        prompt = self.prompt() if prompt is None else prompt
        constraint = self.structure.constraint(chat, prompt)
        assert constraint is not None
        text = self.writer.write(constraint, seed)
        parser = self.replies.parser(chat.offered_tools(), prompt, parallel=not chat.one_call_at_most())
        return Reply.of([*parser.feed(text), *parser.finish()])


@pytest.fixture(scope="module", params=[(name, kind) for name in FAMILIES for kind in ("tokens", "text")], ids="-".join)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Family]:
    yield from opened(*request.param, tmp_path_factory.mktemp("family"))


def opened(name: str, kind: str, folder: Path) -> Iterator[Family]:
    control = CONTROL[name] if kind == "tokens" else []
    template = CHATML + "{# [ARGS] #}" * (kind == "tokens")
    path: Path = write_tiny_model(folder / "tiny.gguf", template=template, control=control)
    with Vocabulary.open(path) as vocabulary:
        replies = ReplyFormat(name, vocabulary)
        structure = Structure(replies, Compiler(vocabulary, replies.tags))
        yield Family(
            replies,
            structure,
            vocabulary,
            Writer(vocabulary, replies.shown_tokens(TOOLS) | {*replies.tags.values()}, PAIRS.get(name, ())),
        )


def assert_valid(name: str, text: str) -> None:
    arguments = json.loads(text)
    assert isinstance(arguments, dict)
    if name == "get_weather":
        assert {"city", "unit"} <= arguments.keys() <= {"city", "days", "unit", "note"}
        assert isinstance(arguments["city"], str) and arguments["unit"] in ("C", "F")
        assert arguments.get("days", 1) in range(1, 10)
        assert isinstance(arguments.get("note"), str | None)
    elif name == "edit":
        assert arguments.keys() == {"at", "lines"}
        assert 2 <= len(arguments["at"]) <= 4 and set(arguments["at"]) <= set("abc")
        assert all(isinstance(line, bool) for line in arguments["lines"])
    elif name == "partly":
        assert isinstance(arguments["n"], int)
    else:
        assert name in ("run", "odd")


@pytest.mark.parametrize("seed", range(12))
def test_a_required_call_is_read_back(family: Family, seed: int) -> None:
    reply = family.reply(seed, tools=TOOLS, tool_choice="required")
    assert reply.content == ""
    assert 1 <= len(reply.calls) <= MOST_CALLS
    for call in reply.calls:
        assert_valid(call.name, call.arguments)


@pytest.mark.parametrize("seed", range(6))
def test_without_parallel_calls_there_is_exactly_one(family: Family, seed: int) -> None:
    reply = family.reply(seed, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert len(reply.calls) == 1 and reply.content == ""
    assert_valid(reply.calls[0].name, reply.calls[0].arguments)


@pytest.mark.parametrize("name", ["get_weather", "edit", "run"])
def test_a_named_function_is_called_once(family: Family, name: str) -> None:
    choice = {"type": "function", "function": {"name": name}}
    reply = family.reply(1, tools=TOOLS, tool_choice=choice)
    assert [call.name for call in reply.calls] == [name] and reply.content == ""
    assert_valid(name, reply.calls[0].arguments)


@pytest.mark.parametrize("seed", range(3))
def test_schemas_that_cannot_be_enforced_never_fail_a_forced_call(family: Family, seed: int) -> None:
    before = family.structure.loosened.copy()
    reply = family.reply(seed, tools=[ODD, PARTLY], tool_choice="required")
    assert family.structure.loosened - before == {"partly": 1, "not at all": 1}
    for call in reply.calls:
        assert_valid(call.name, call.arguments)


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_in_json_is_the_content(family: Family, seed: int) -> None:
    reply = family.reply(seed, response_format={"type": "json_object"})
    assert isinstance(json.loads(reply.content), dict) and not reply.calls


@pytest.mark.parametrize("seed", range(6))
def test_with_tools_an_answer_is_in_json_or_a_call(family: Family, seed: int) -> None:
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    reply = family.reply(seed, tools=[RUN], response_format=form)
    if reply.calls:
        assert {call.name for call in reply.calls} == {"run"} and reply.content == ""
    else:
        assert isinstance(json.loads(reply.content)["colour"], str)


def test_reasoning_that_the_prompt_opens_comes_first(family: Family) -> None:
    opening = OPENED.get(family.replies.name)
    if opening is None:
        pytest.skip("its prompts open no reasoning")
    for seed in range(4):
        reply = family.reply(seed, family.prompt(f"{opening}\n"), tools=[WEATHER], tool_choice="required")
        assert reply.content == "" and reply.calls
        assert_valid("get_weather", reply.calls[0].arguments)


def test_reasoning_may_come_where_its_tag_is_a_token(family: Family) -> None:
    chat = ChatRequest.model_validate(
        {"model": "m", "messages": [{"role": "user"}], "tools": [RUN], "tool_choice": "required"}
    )
    constraint = family.structure.constraint(chat, family.prompt())
    assert constraint is not None
    allowed = constraint.begin().allowed()
    thinking = [family.replies.tags.get(tag) for tag in ("<think>", "[THINK]", "<|channel>", "<|channel|>")]
    for token in filter(None, thinking):
        assert allowed[token]
        if family.replies.name != "harmony":  # which says by its channels what is reasoning
            closed = family.vocabulary.tokenise("<think></think>", parse_special=True)
            again = family.structure.constraint(chat, [*family.prompt(), *closed])
            if "</think>" in family.replies.tags and token == family.replies.tags["<think>"]:
                assert again is not None and not again.begin().allowed()[token]


def test_names_that_a_family_cannot_write_are_refused(family: Family) -> None:
    ask = {"tools": [tool('say "hi" to')], "tool_choice": "required", "parallel_tool_calls": False}
    if family.replies.name in ("gemma", "harmony"):
        with pytest.raises(ApiError, match="can't hold the name"):
            family.reply(0, **ask)
    else:
        reply = family.reply(0, **ask)
        assert [call.name for call in reply.calls] == ['say "hi" to']


@pytest.mark.parametrize(
    ("schema", "strict", "reason"),
    [
        ({"not": {}}, True, "not"),
        ({"type": "string", "format": "colour"}, True, "colour"),
        ({"type": "string", "pattern": "(?=x)"}, False, "look-around"),
        ({"type": 5}, None, "type"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(
    tmp_path: Path, schema: dict, strict: bool | None, reason: str
) -> None:
    for family in opened("hermes", "text", tmp_path):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": strict}}
        with pytest.raises(ApiError, match=reason) as caught:
            family.reply(0, response_format=form)
        assert (caught.value.status, caught.value.code) == (400, "unsupported_schema")


def test_without_strictness_the_rest_of_a_schema_is_kept(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "not": {}}}, "required": ["a"]}
    for family in opened("hermes", "text", tmp_path):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        assert isinstance(json.loads(family.reply(0, response_format=form).content)["a"], int)
        assert family.structure.loosened == {"partly": 1}


def test_tools_under_auto_are_not_compiled(tmp_path: Path) -> None:
    for family in opened("hermes", "text", tmp_path):
        for choice in ({}, {"tool_choice": "auto"}, {"tool_choice": "none"}, {"response_format": {"type": "text"}}):
            chat = ChatRequest.model_validate({"model": "m", "messages": [{}], "tools": [ODD], **choice})
            assert family.structure.constraint(chat, family.prompt()) is None
        assert not family.structure.loosened
