"""What each family's replies come to, well-formed and not. Case E11 at the parsers."""

from __future__ import annotations

import json

import pytest

from clawd.config import ModelSettings
from clawd.model.replies.deltas import Call, CallArguments, CallBegins, Reply
from clawd.model.replies.families import FAMILIES, family_of
from clawd.model.replies.json_scan import loads
from tests.model.replies.reading import deltas, parser, reply

LOOK_UP = Call("look_up", '{"text": "a"}')
RUN = Call("run", "{}")


@pytest.mark.parametrize(
    ("family", "text", "expected"),
    [
        (
            "hermes",
            'Let me see.\n<tool_call>\n{"name": "look_up", "arguments": {"text": "a"}}\n</tool_call>',
            Reply("Let me see.", calls=[LOOK_UP]),
        ),
        (
            "hermes",
            '<tool_call>\n{"name": "look_up", "arguments": {"text": "a"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "run", "arguments": {}}\n</tool_call>\n',
            Reply(calls=[LOOK_UP, RUN]),
        ),
        ("hermes", '<tool_call>{"name": "run"}</tool_call>', Reply(calls=[RUN])),
        (
            "hermes",
            '<tool_call>{"arguments": {"text": "a"}, "name": "look_up"}</tool_call> done',
            Reply("done", calls=[LOOK_UP]),
        ),
        (
            "hermes",
            r'<tool_call>{"name": "look_up", "arguments": "{\"text\": \"a\"}"}</tool_call>',
            Reply(calls=[LOOK_UP]),
        ),
        ("hermes", '<tool_call>{"name": "look_up", "arguments": {"text": "a"}}', Reply(calls=[LOOK_UP])),
        ("hermes", '<tool_call>{"name": "look_up", "arguments": {"text": "a"}}}</tool_call>', Reply(calls=[LOOK_UP])),
        (
            "hermes",
            '<tool_call>{"name": "look_up", "arguments": {"text": "</tool_call> }"}}</tool_call>',
            Reply(calls=[Call("look_up", '{"text": "</tool_call> }"}')]),
        ),
        (
            "hermes",
            '<tool_call>{"name": "look_up", "arguments": {"text": "a\nb"}}</tool_call>',
            Reply(calls=[Call("look_up", '{"text": "a\\nb"}')]),
        ),
        (
            "qwen_coder",
            'I look.\n<tool_call>\n<function=look_up>\n<parameter=text>\n a\n"b"\n</parameter>\n'
            "<parameter=count>\n3\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n"
            '<parameter=list>\n[1, "x"]\n</parameter>\n<parameter=new>\n7\n</parameter>\n</function>\n</tool_call>',
            Reply(
                "I look.",
                calls=[
                    Call(
                        "look_up",
                        '{"text": " a\\n\\"b\\"", "count": 3, "exact": true, "list": [1, "x"], "new": "7"}',
                    )
                ],
            ),
        ),
        ("qwen_coder", "<function=run>\n</function>\n", Reply(calls=[RUN])),
        (
            "qwen_coder",
            "<tool_call><function=look_up><parameter=mixed>5</parameter><parameter=exact>null</parameter></function>"
            "</tool_call><tool_call><function=run></function></tool_call>",
            Reply(calls=[Call("look_up", '{"mixed": 5, "exact": null}'), RUN]),
        ),
        (
            "qwen_coder",
            "<function=look_up><parameter=count>many</parameter></function>",
            Reply(calls=[Call("look_up", '{"count": "many"}')]),
        ),
        ("qwen_coder", '<tool_call>{"name": "run", "arguments": {}}</tool_call>', Reply(calls=[RUN])),
        ("llama3", '{"name": "look_up", "parameters": {"text": "a"}}', Reply(calls=[LOOK_UP])),
        ("llama3", '<|python_tag|>{"type": "function", "name": "run", "parameters": {}}', Reply(calls=[RUN])),
        (
            "llama3",
            '{"name": "look_up", "parameters": {"text": "a"}}; {"name": "run", "parameters": {}}',
            Reply(calls=[LOOK_UP, RUN]),
        ),
        ("mistral", '[TOOL_CALLS] [{"name": "look_up", "arguments": {"text": "a"}}]', Reply(calls=[LOOK_UP])),
        (
            "mistral",
            'Well.[TOOL_CALLS][{"name": "look_up", "arguments": {"text": "a"}, "id": "abcdefghi"}, '
            '{"name": "run", "arguments": {}}]',
            Reply("Well.", calls=[LOOK_UP, RUN]),
        ),
        (
            "mistral",
            '[TOOL_CALLS]look_up[ARGS]{"text": "a"}[TOOL_CALLS]run[CALL_ID]abcdefghi[ARGS]{}',
            Reply(calls=[LOOK_UP, RUN]),
        ),
        ("mistral", '[TOOL_CALLS]look_up{"text": "a"}', Reply(calls=[LOOK_UP])),
        ("mistral", "[THINK]hm[/THINK]so", Reply("so", "hm")),
        (
            "gemma",
            'Now <|tool_call>call:look_up{text:<|"|>a, b:"c"<|"|>,count:1,list:[<|"|>x<|"|>,true]}<tool_call|>',
            Reply("Now", calls=[Call("look_up", '{"text": "a, b:\\"c\\"", "count": 1, "list": ["x", true]}')]),
        ),
        (
            "gemma",
            '<|tool_call>call:look_up{"text": "a, b: {c: 1}", "list": [{"d": null}]}<tool_call|>',
            Reply(calls=[Call("look_up", '{"text": "a, b: {c: 1}", "list": [{"d": null}]}')]),
        ),
        ("gemma", "<|channel>thought\nhm\n<channel|>so", Reply("so", "hm")),
        (
            "harmony",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.look_up "
            '<|constrain|>json<|message|>{"text": "a"}',
            Reply(reasoning="hm", calls=[LOOK_UP]),
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>so",
            Reply("so", "hm"),
        ),
        ("harmony", " to=functions.run<|channel|>commentary json<|message|>{}", Reply(calls=[RUN])),
        ("harmony", "no channels at all", Reply("no channels at all")),
    ],
)
def test_well_formed_replies(family: str, text: str, expected: Reply) -> None:
    found = reply(family, text)
    assert found == expected
    for call in found.calls:
        assert isinstance(loads(call.arguments), dict)


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("hermes", "<tool_call>run the tool</tool_call>"),
        ("hermes", "<tool_call>{}</tool_call>"),
        ("hermes", '<tool_call>{"name": "run", arguments}</tool_call>'),
        ("hermes", '<tool_call>{"name": 7, "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "run", "arguments": [1]}</tool_call>'),
        ("hermes", '<tool_call>{"name": "run", "argu'),
        ("hermes", '<tool_call>{"colour": "red"}'),
        ("hermes", "a <tool_cal"),
        ("hermes", "</tool_call>"),
        ("hermes", '<tool_call>{"name": "\\ud83d", "arguments": {}}'),
        ("qwen_coder", "<tool_call>look_up</tool_call>"),
        ("qwen_coder", "<function=\nrun\n>"),
        ("qwen_coder", "<tool_call>\n<function=ru"),
        ("llama3", '{"name": "unknown", "parameters": {}}'),
        ("llama3", '{"colour": "red"}'),
        ("llama3", "<|python_tag|>print(1)"),
        ("llama3", '{"name": "run", "parameters": '),
        ("mistral", "[TOOL_CALLS]"),
        ("mistral", "[TOOL_CALLS] look up, run!"),
        ("mistral", '[TOOL_CALLS] [{"colour": 1}]'),
        ("gemma", '<|tool_call>call:run{a:<|"|>}<tool_call|>'),
        ("gemma", "<|tool_call>run<tool_call|>"),
    ],
)
def test_what_is_no_call_stays_content(family: str, text: str) -> None:
    assert reply(family, text) == Reply(text)


@pytest.mark.parametrize(
    ("family", "text", "arguments"),
    [
        ("hermes", '<tool_call>{"name": "run", "arguments": {"a": {"b": 1}</tool_call>', '{"a": {"b": 1}'),
        ("hermes", '<tool_call>{"name": "run", "arguments": {\'a\': 1}}</tool_call>', "{'a': 1}}"),
        ("hermes", '<tool_call>{"name": "run", "arguments": {"a": "cut', '{"a": "cut'),
        ("qwen_coder", "<function=run><parameter=a>cut", '{"a": "cut'),
        ("harmony", "<|channel|>commentary to=functions.run<|message|>nonsense", "nonsense"),
        ("mistral", "[TOOL_CALLS]run[ARGS]{'a': 1}", "{'a': 1}"),
    ],
)
def test_broken_arguments_of_a_call_that_has_begun_are_told_as_they_stand(
    family: str, text: str, arguments: str
) -> None:
    assert reply(family, text) == Reply(calls=[Call("run", arguments)])


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("<think>\nhm\n</think>\n\nso", False, Reply("so", "hm")),
        ("\n<think>hm", False, Reply("", "hm")),
        ("hm</think>so", True, Reply("so", "hm")),
        ("<think>hm</think>so", True, Reply("so", "hm")),
        ("never closed", True, Reply("", "never closed")),
        ("<think>\n\n</think>\n\nso ", False, Reply("so ")),
        (" plain\n", False, Reply(" plain\n")),
        ("the tag <think> is one", False, Reply("the tag <think> is one")),
        ("<thi", False, Reply("<thi")),
        (
            'hm</think>\n<tool_call>{"name": "run", "arguments": {}}</tool_call>',
            True,
            Reply(reasoning="hm", calls=[RUN]),
        ),
    ],
)
def test_reasoning_is_told_apart(text: str, opened: bool, expected: Reply) -> None:
    assert reply("hermes", text, opened=opened) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_without_tools_a_call_is_text(family: str) -> None:
    text = '<tool_call>{"name": "run", "arguments": {}}</tool_call> [TOOL_CALLS] '
    assert reply(family, text, tools=False) == Reply(text)


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("hermes", '<tool_call>{"name": "look_up", "arguments": {"text": "one two three"}}</tool_call>'),
        ("qwen_coder", "<tool_call><function=look_up><parameter=text>one two three</parameter></function></tool_call>"),
        ("llama3", '{"name": "look_up", "parameters": {"text": "one two three"}}'),
        ("mistral", '[TOOL_CALLS] [{"name": "look_up", "arguments": {"text": "one two three"}}]'),
        ("harmony", '<|channel|>commentary to=functions.look_up<|message|>{"text": "one two three"}'),
    ],
)
def test_a_call_is_told_while_it_is_written(family: str, text: str) -> None:
    read = parser(family)
    until_two = deltas_so_far = [delta for char in text[: text.index("two")] for delta in read.feed(char)]
    assert deltas_so_far[0] == CallBegins(0, "look_up")
    told = "".join(delta.text for delta in until_two if isinstance(delta, CallArguments))
    assert told == '{"text": "one '
    rest = deltas(read, [text[text.index("two") :]])
    assert json.loads(told + "".join(d.text for d in rest if isinstance(d, CallArguments))) == {"text": "one two three"}


@pytest.mark.parametrize(
    ("template", "family"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "hermes"),
        ("within <tool_call></tool_call> XML tags", "hermes"),
        ("<tool_call>\n<function=name>\n<parameter=key>", "qwen_coder"),
        ("{{- '<|python_tag|>' }}", "llama3"),
        ('{"name": function name, "parameters": dictionary of argument name and its value}', "llama3"),
        ("{{- '[TOOL_CALLS]' }}", "mistral"),
        ("{{- '<|tool_call>call:' }}", "gemma"),
        ("<|start|>assistant<|channel|>final<|message|>", "harmony"),
    ],
)
def test_the_template_tells_the_family(template: str, family: str) -> None:
    assert family_of(template) == family


def test_the_setting_knows_every_family() -> None:
    for family in FAMILIES:
        assert ModelSettings(reply_format=family).reply_format == family
    with pytest.raises(ValueError, match="reply_format"):
        ModelSettings(reply_format="other")
