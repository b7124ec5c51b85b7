"""However a reply is cut into pieces, and whatever stands in it, the parsers say the same and never fail."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.model.replies.deltas import CallArguments, CallBegins, Reply
from clawd.model.replies.families import FAMILIES
from tests.model.replies.reading import deltas, joined, parser, reply

FRAGMENTS = st.sampled_from(
    [
        *("<think>", "</think>", "[THINK]", "[/THINK]", "<|channel>thought", "<channel|>"),
        *("<tool_call>", "</tool_call>", "<function=run>", "<function=look_up>", "</function>"),
        *("<parameter=text>", "<parameter=count>", "<parameter=a\n", "</parameter>", "<parameter="),
        *("<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "run", "look_up"),
        *("<|tool_call>", "call:run", '<|"|>', "<tool_call|>"),
        *("<|start|>", "assistant", "<|channel|>", "analysis", "final", "commentary", " to=functions.run"),
        *("<|constrain|>", "json", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
        *('{"name": "run", "arguments": {', '{"name": "look_up", "parameters": {"text": "a"}}', '{"arguments": {}, '),
        *('"name": "run"', '"type": "function", ', "{", "}", "[", "]", ",", ":", '"', "\\", "\n", " ", "\x00"),
        *("3", "-1.5e9", "true", "null", "NaN", "1e999", "é", "\ud83d", '"\\ud83d"', "'", ";", "word"),
    ]
)
TEXTS = st.lists(FRAGMENTS | st.text(max_size=3), max_size=14).map("".join)


def cut(text: str, places: list[int]) -> list[str]:
    marks = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in pairwise(marks)]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXTS, places=st.lists(st.integers(0, 400), max_size=8), opened=st.booleans(), tools=st.booleans())
def test_any_chunking_says_the_same(family: str, text: str, places: list[int], opened: bool, tools: bool) -> None:
    whole = joined(deltas(parser(family, opened=opened, tools=tools), [text]))
    assert joined(deltas(parser(family, opened=opened, tools=tools), cut(text, places))) == whole
    assert joined(deltas(parser(family, opened=opened, tools=tools), list(text))) == whole


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
def test_calls_are_well_numbered(family: str, text: str) -> None:
    begun = -1
    for delta in deltas(parser(family), [text]):
        if isinstance(delta, CallBegins):
            assert delta.index == begun + 1
            assert delta.name
            begun += 1
        elif isinstance(delta, CallArguments):
            assert delta.index == begun


PLAIN = st.text(st.characters(exclude_characters="<[{"), max_size=60)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=100, deadline=None)
@given(text=PLAIN)
def test_plain_text_passes_unchanged(family: str, text: str) -> None:
    assert reply(family, text) == Reply(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), VALUES, max_size=4)

WRITERS = {
    "hermes": lambda name, arguments: f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>',
    "llama3": lambda name, arguments: f'{{"name": "{name}", "parameters": {arguments}}}',
    "mistral": lambda name, arguments: f'[TOOL_CALLS] [{{"name": "{name}", "arguments": {arguments}}}]',
    "harmony": lambda name, arguments: f"<|channel|>commentary to=functions.{name}<|message|>{arguments}<|call|>",
}


@pytest.mark.parametrize("family", WRITERS)
@settings(max_examples=100, deadline=None)
@given(arguments=ARGUMENTS, indent=st.sampled_from([None, 2]), plain=st.booleans())
def test_every_json_object_arrives(family: str, arguments: dict, indent: int | None, plain: bool) -> None:
    text = json.dumps(arguments, indent=indent, ensure_ascii=plain)
    if family == "harmony" and "<|" in text:
        return
    (call,) = reply(family, WRITERS[family]("run", text)).calls
    assert (call.name, json.loads(call.arguments)) == ("run", arguments)


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])).filter(lambda t: "</parameter>" not in t))
def test_every_text_arrives_as_a_parameter(text: str) -> None:
    written = f"<tool_call>\n<function=run>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"
    (call,) = reply("qwen_coder", written).calls
    assert json.loads(call.arguments) == {"a": text}


@pytest.mark.parametrize("family", ["hermes", "llama3", "mistral", "qwen_coder", "gemma"])
def test_deep_nesting_is_no_error(family: str) -> None:
    deep = "[" * 100_000
    for text in (deep, f"<tool_call>{deep}", f'{{"arguments": {deep}', f"<|tool_call>call:run{{a:{deep}}}<tool_call|>"):
        assert isinstance(reply(family, text), Reply)
