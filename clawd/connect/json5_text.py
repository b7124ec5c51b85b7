"""Setting one value in a JSON5 text and leaving every other character of it alone, comments and order included.

Reads what JSON5 allows: comments, unquoted and single-quoted names, trailing commas. Writes JSON, which JSON5 includes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from clawd.errors import ConfigError

_SPACE = re.compile(r"(?:[\s\ufeff]+|//[^\n\r\u2028\u2029]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n\r]|\\(?:\r\n|.))*"|' + r"'(?:[^'\\\n\r]|\\(?:\r\n|.))*'", re.DOTALL)
_NAME = re.compile(r"[\w$\u200c\u200d\\]+")
_WORD = re.compile(r"[^\s,:\[\]{}\"'/]+")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(\r\n|.))", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0", "\n": "", "\r\n": "", "\r": ""}

MOST_NESTED = 200
STEP = "  "


@dataclass
class Node:
    """A value and where it stands: text[start:end]. `value`: a string's, or a bare word as it is written."""

    kind: str  # object, array, string, word
    start: int
    end: int = 0
    value: str = ""
    members: dict[str, Node] = field(default_factory=dict)  # of a name that is there twice, the last: it counts
    items: list[Node] = field(default_factory=list)


def parse(text: str) -> Node:
    """The one value of a JSON5 text.

    Raises:
        ConfigError: it isn't JSON5; names the line.
    """
    reader = _Reader(text)
    root = reader.value(reader.space(0), 0)
    end = reader.space(root.end)
    if end != len(text):
        raise reader.error(end, "the end was expected")
    return root


def find(root: Node, path: Sequence[str]) -> Node | None:
    """The value at a path of names; None: there is none."""
    node: Node | None = root
    for name in path:
        node = node.members.get(name) if node is not None else None
    return node


def strings(node: Node | None) -> list[str] | None:
    """The strings of an array; None: it is none, or holds something else."""
    if node is None or node.kind != "array" or any(item.kind != "string" for item in node.items):
        return None
    return [item.value for item in node.items]


def put(text: str, path: Sequence[str], value: Any) -> str:
    """`text` with `value` at `path`; objects on the way that aren't there are made.

    Raises:
        ConfigError: the text isn't JSON5, or something on the way is no object.
    """
    node = parse(text)
    for depth, name in enumerate(path):
        if node.kind != "object":
            raise ConfigError(f"{'.'.join(path[:depth]) or 'The file'} is no object, so nothing can be set in it.")
        if name not in node.members:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _add(text, node, name, value)
        node = node.members[name]
    return text[: node.start] + _json(value, _indent(text, node.start)) + text[node.end :]


def _add(text: str, node: Node, name: str, value: Any) -> str:
    """The object `node` with one more member at its end; comments stay with what they stand behind."""
    outer = _indent(text, node.start)
    close = node.end - 1
    last = max(node.members.values(), key=lambda member: member.end, default=None)
    inner = _indent(text, last.start) if last and "\n" in text[node.start : close] else outer + STEP
    member = f"{json.dumps(name)}: {_json(value, inner)}"
    if last is None:
        between = text[node.start + 1 : close].rstrip()  # comments, if anything
        return f"{text[: node.start + 1]}{between}\n{inner}{member}\n{outer}{text[close:]}"
    between = text[last.end : close]
    comma = "" if text.startswith(",", _Reader(text).space(last.end)) else ","
    kept = between.rstrip()
    if "\n" not in between and "//" not in kept and "/*" not in kept:
        return f"{text[: last.end]}{comma}{kept} {member}{text[last.end + len(kept) :]}"
    trail = "" if comma else ","  # as its neighbours have it
    return f"{text[: last.end]}{comma}{kept}\n{inner}{member}{trail}\n{outer}{text[close:]}"


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _json(value: Any, indent: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=len(STEP)).replace("\n", f"\n{indent}")


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text

    def error(self, at: int, expected: str) -> ConfigError:
        line = self.text.count("\n", 0, at) + 1
        return ConfigError(f"The file is no JSON5: line {line}: {expected}.")

    def space(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def value(self, at: int, depth: int) -> Node:
        if depth > MOST_NESTED:
            raise self.error(at, "it is nested too deeply")
        first = self.text[at : at + 1]
        if first == "{":
            return self._object(at, depth)
        if first == "[":
            return self._array(at, depth)
        if first and first in "\"'":
            return self._string(at)
        word = _WORD.match(self.text, at)
        if word is None:
            raise self.error(at, "a value was expected")
        return Node("word", at, word.end(), word[0])

    def _object(self, start: int, depth: int) -> Node:
        node = Node("object", start)
        at = self.space(start + 1)
        while self.text[at : at + 1] != "}":
            name, at = self._name(at)
            at = self.space(at)
            if self.text[at : at + 1] != ":":
                raise self.error(at, "`:` was expected")
            member = self.value(self.space(at + 1), depth + 1)
            node.members[name] = member
            at = self._separator(member.end, "}")
        node.end = at + 1
        return node

    def _array(self, start: int, depth: int) -> Node:
        node = Node("array", start)
        at = self.space(start + 1)
        while self.text[at : at + 1] != "]":
            node.items.append(self.value(at, depth + 1))
            at = self._separator(node.items[-1].end, "]")
        node.end = at + 1
        return node

    def _separator(self, at: int, close: str) -> int:
        at = self.space(at)
        if self.text[at : at + 1] == ",":
            return self.space(at + 1)
        if self.text[at : at + 1] != close:
            raise self.error(at, f"`,` or `{close}` was expected")
        return at

    def _name(self, at: int) -> tuple[str, int]:
        if self.text[at : at + 1] in ('"', "'"):
            node = self._string(at)
            return node.value, node.end
        name = _NAME.match(self.text, at)
        if name is None:
            raise self.error(at, "a name was expected")
        return _unescaped(name[0]), name.end()

    def _string(self, at: int) -> Node:
        found = _STRING.match(self.text, at)
        if found is None:
            raise self.error(at, "a string that ends on its line was expected")
        return Node("string", at, found.end(), _unescaped(found[0][1:-1]))


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        digits = match[1] or match[2]
        return chr(int(digits, 16)) if digits else _ESCAPED.get(match[3], match[3])

    return _ESCAPE.sub(one, text)
