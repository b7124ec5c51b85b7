"""Histories with calls in templates of every habit. Case E7 at the renderer."""

from __future__ import annotations

import json

import pytest

from clawd.model.messages import UNREADABLE, TemplateForm, arguments_object
from clawd.model.template import ChatTemplate

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
HEAD = "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}{% for m in messages %}{{ m.role }}:{{ m.content }}"
TAIL = "|{% endfor %}"
CALLS = HEAD + "{% for c in m.tool_calls or [] %}"
OBJECTS = CALLS + "<{{ c.function.name }}{% for k, v in c.function.arguments | items %} {{ k }}={{ v }}{% endfor %}>"
TEXT = CALLS + "<{{ c.function.name + ' ' + c.function.arguments }}>"
EITHER = CALLS + "<{{ c.function.name }} {{ c.function.arguments | tojson }}>"
SINGLE = (
    HEAD
    + "{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one only') }}{% endif %}"
    + "<{{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].function.arguments | tojson }}>{% endif %}"
)
FIRST_ONLY = HEAD + "{% if m.tool_calls %}<{{ m.tool_calls[0].function | tojson }}>{% endif %}"
SHORT_IDS = (
    CALLS
    + "{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}<{{ c.function | tojson }} {{ c.id }}>"
    + "{% endfor %}{% if m.role == 'tool' %}={{ m.tool_call_id }}{% endif %}"
)
LOOP = "{% endfor %}"


def rendered(source: str, messages: list[dict], tools: list[dict] | None = None) -> str:
    template = ChatTemplate(source + TAIL)
    return template.render(*TemplateForm(template).adapt(messages, tools))


def history(*arguments: object) -> list[dict]:
    calls = [
        {"id": f"call_{place}", "type": "function", "function": {"name": f"f{place}", "arguments": given}}
        for place, given in enumerate(arguments)
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": f"r{call['id'][-1]}"} for call in calls]
    return [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": calls}, *results]


@pytest.mark.parametrize(
    ("source", "given", "written"),
    [
        (OBJECTS + LOOP, '{"a": 1}', "<f0 a=1>"),
        (OBJECTS + LOOP, '{"a', f'<f0 {UNREADABLE}={{"a>'),
        (OBJECTS + LOOP, "[1]", f"<f0 {UNREADABLE}=[1]>"),
        (OBJECTS + LOOP, "", "<f0>"),
        (OBJECTS + LOOP, {"a": 1}, "<f0 a=1>"),
        (TEXT + LOOP, '{"a": 1}', '<f0 {"a": 1}>'),
        (TEXT + LOOP, '{"a', '<f0 {"a>'),
        (TEXT + LOOP, "", "<f0 {}>"),
        (TEXT + LOOP, None, "<f0 {}>"),
        (EITHER + LOOP, '{"a":1}', '<f0 {"a": 1}>'),
        (EITHER + LOOP, '{"a', '<f0 "{\\"a">'),
    ],
)
def test_arguments_take_the_form_that_the_template_wants(source: str, given: object, written: str) -> None:
    text = rendered(source, history(given), TOOLS)
    assert text == f"look_up;user:q|assistant:{written}|tool:r0|"


@pytest.mark.parametrize("source", [SINGLE, FIRST_ONLY])
def test_several_calls_come_one_by_one_where_only_one_is_taken(source: str) -> None:
    text = rendered(source, history("{}", "{}"), TOOLS)
    places = [text.index(part) for part in ("f0", "tool:r0", "f1", "tool:r1")]
    assert places == sorted(places)
    assert text.count("assistant:") == 2


def test_several_calls_stay_together_where_they_can() -> None:
    text = rendered(EITHER + LOOP, history("{}", "{}"), TOOLS)
    assert text == "look_up;user:q|assistant:<f0 {}><f1 {}>|tool:r0|tool:r1|"


def test_ids_are_shortened_where_they_must_be_and_still_match() -> None:
    text = rendered(SHORT_IDS, history("{}"), TOOLS)
    call_id = text.split("tool:r0=")[1].removesuffix("|")
    assert len(call_id) == 9 and f" {call_id}>" in text
    kept = history("{}")
    kept[1]["tool_calls"][0]["id"] = kept[2]["tool_call_id"] = "abcdefghi"
    assert rendered(SHORT_IDS, kept, TOOLS).endswith("tool:r0=abcdefghi|")


def test_a_template_without_tools_gets_them_in_the_hermes_form() -> None:
    plain = "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    text = rendered(plain, history('{"a": 1}', '{"b'), TOOLS)
    assert text.startswith("system:You are a helpful assistant.\n\n# Tools")
    assert json.dumps(TOOLS[0]) in text
    assert '|assistant:<tool_call>\n{"name": "f0", "arguments": {"a": 1}}\n</tool_call>\n<tool_call>' in text
    assert '{"name": "f1", "arguments": {"b}' in text
    assert text.endswith("|user:<tool_response>\nr0\n</tool_response>\n<tool_response>\nr1\n</tool_response>|")


def test_the_hermes_form_needs_no_system_message() -> None:
    refusing = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}"
    text = rendered(refusing, [{"role": "user", "content": "q"}], TOOLS)
    assert text.startswith("# Tools") and text.endswith("\n\nq|")


def test_calls_that_the_template_would_leave_out_are_written_as_text() -> None:
    assert '<tool_call>\n{"name": "f0", "arguments": {}}' in rendered(HEAD, history(""), TOOLS)


def test_plain_conversations_are_left_alone() -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    for source in (HEAD, "{% for m in messages %}{{ m.content }}", EITHER + LOOP):
        assert TemplateForm(ChatTemplate(source + TAIL)).adapt(messages, None) == (messages, None)


def test_reasoning_takes_the_name_that_the_template_has_for_it() -> None:
    source = HEAD + "{% if m.thinking %}({{ m.thinking }}){% endif %}"
    messages = [{"role": "assistant", "content": "", "reasoning_content": "hm"}]
    assert rendered(source, messages, TOOLS) == "look_up;assistant:(hm)|"


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (None, {}),
        (" ", {}),
        ('{"a": 1}', {"a": 1}),
        ("null", None),
        ("[" * 100_000, None),
        ('{"a": ' + "9" * 5000 + "}", None),
        (7, None),
    ],
)
def test_arguments_of_any_kind_are_no_error(given: object, value: object) -> None:
    assert arguments_object(given) == value
