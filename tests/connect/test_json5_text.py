"""One value set, every other character left alone."""

from __future__ import annotations

import json

import pytest

from clawd.connect.json5_text import find, parse, put, strings
from clawd.errors import ConfigError

COMMENTED = """\
// my config
{
  // who answers
  agents: { defaults: { model: { primary: 'other/model' } } }, // mine
  "tools": {
    allow: ["read", 'write',],
  },
  gateway: { port: 0x1F, ratio: +.5, big: Infinity } /* last */
}
// end
"""


def test_everything_of_json5_is_read() -> None:
    root = parse("\ufeff/*a*/{a: 'it\\'s\\\n on', \"b\\u0041\": [1, -2.5e3, null,], $c_1: {},}//z")
    assert list(root.members) == ["a", "bA", "$c_1"]
    assert root.members["a"].value == "it's on"
    assert [item.value for item in root.members["bA"].items] == ["1", "-2.5e3", "null"]


@pytest.mark.parametrize(
    ("text", "path", "value", "result"),
    [
        ("{}", ("a",), 1, '{\n  "a": 1\n}'),
        ("{a: 1}", ("b",), "x", '{a: 1, "b": "x"}'),
        ("{a: 1, }", ("b",), 2, '{a: 1, "b": 2 }'),
        ("{a: 1}", ("a",), [True], "{a: [\n  true\n]}"),
        ("{\n  a: 1 // one\n}\n", ("b",), 2, '{\n  a: 1, // one\n  "b": 2\n}\n'),
        ("{\n  a: 1, // one\n}\n", ("b",), 2, '{\n  a: 1, // one\n  "b": 2,\n}\n'),
        ("{\n\ta: {\n\t\tb: 1\n\t}\n}", ("a", "c"), None, '{\n\ta: {\n\t\tb: 1,\n\t\t"c": null\n\t}\n}'),
        ("{a: 1, a: 2}", ("a",), 3, "{a: 1, a: 3}"),
        ("{ // nothing yet\n}", ("a",), 1, '{ // nothing yet\n  "a": 1\n}'),
        ("{}", ("a", "b", "c"), 1, '{\n  "a": {\n    "b": {\n      "c": 1\n    }\n  }\n}'),
    ],
)
def test_put(text: str, path: tuple[str, ...], value: object, result: str) -> None:
    assert put(text, path, value) == result
    found = find(parse(result), path)
    assert found is not None
    if isinstance(value, str):
        assert found.value == value


def test_all_else_stays_character_for_character() -> None:
    changed = put(COMMENTED, ("agents", "defaults", "skills"), [])
    assert changed.replace(', "skills": []', "") == COMMENTED
    added = put(COMMENTED, ("models", "providers", "clawd"), {"api": "x"})
    untouched, last = COMMENTED.split(" /* last */")
    assert added.startswith(f"{untouched}, /* last */\n")
    assert added.endswith(last)
    assert find(parse(added), ("gateway", "big")).value == "Infinity"
    assert find(parse(added), ("models", "providers", "clawd", "api")).value == "x"


def test_plain_json_stays_plain_json() -> None:
    text = json.dumps({"a": {"b": [1, 2]}, "c": "ü"}, indent=2)
    assert json.loads(put(text, ("a", "d", "e"), {"f": None})) == {
        "a": {"b": [1, 2], "d": {"e": {"f": None}}},
        "c": "ü",
    }


@pytest.mark.parametrize(
    "text", ["", "{", "{a}", "{a: }", "{a: 1 b: 2}", "[1", "{a: 'x\ny'}", "{} {}", "[" * 5000, "{a: 1,, }"]
)
def test_what_is_no_json5_is_refused_with_the_line(text: str) -> None:
    with pytest.raises(ConfigError, match="line"):
        parse(text)


def test_only_an_object_can_be_set_in() -> None:
    with pytest.raises(ConfigError, match=r"models\.providers"):
        put("{models: {providers: []}}", ("models", "providers", "clawd"), 1)


def test_strings_of_an_array() -> None:
    root = parse("{a: ['x', \"y\"], b: [1], c: 'x'}")
    assert strings(root.members["a"]) == ["x", "y"]
    assert strings(root.members["b"]) is strings(root.members["c"]) is strings(None) is None
