"""Qwen3-Coder and Qwen 3.5: `<tool_call><function=name><parameter=key>value</parameter>…</function></tool_call>`.

Values are bare text. What they mean is in the tool's JSON schema: a parameter that may be text alone is told as it
comes, any other when it is complete, as JSON if it is JSON and as text if not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from clawd.model.replies.forms import ForcedTool, Form, Json, Mark, Maybe, Repeated, Text, UpTo, in_order, one_of
from clawd.model.replies.hermes import CLOSE, OPEN, Hermes, tagged_call
from clawd.model.replies.json_scan import dumps, loads

FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
NAME = re.compile(r"[ \t]*([^>\n]{1,256}?)[ \t]*>")
LONGEST_NAME = 300
NULLS = ("null", "none")
CONSTANTS = {"true": True, "false": False, **dict.fromkeys(NULLS)}


class QwenCoder(Hermes):
    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self._schemas = {tool["function"]["name"]: _properties(tool["function"]) for tool in tools}
        self._properties: Mapping[str, Any] = {}
        self._schema: Any = None  # of the current parameter
        self._value = ""
        self._count = 0

    def _text(self) -> bool:
        text, mark = self._take_until(OPEN, FUNCTION)
        self._say(text)
        if mark is not None:
            self._opening = mark
            self._state = self._opened if mark == OPEN else self._function
        return mark is not None

    def _opened(self) -> bool:
        text = self._buffer.lstrip()
        if text.startswith(FUNCTION):
            self._opening += self._buffer[: len(self._buffer) - len(text)] + FUNCTION
            self._buffer = text[len(FUNCTION) :]
            self._state = self._function
            return True
        if text.startswith("{"):  # it falls back on the form of its elders
            return self._open(self._opening)
        return False if not self._ended and FUNCTION.startswith(text) else self._reject()

    def _function(self) -> bool:
        name = NAME.match(self._buffer)
        if name is None:
            return self._reject() if self._ended or self._cannot_be_name() else False
        self._buffer = self._buffer[name.end() :]
        self._begin_call(name[1])
        self._properties = self._schemas.get(name[1], {})
        self._count = 0
        self._state = self._between
        return True

    def _between(self) -> bool:
        """Before a parameter or the function's end; nothing else there has a meaning."""
        _, mark = self._take_until(PARAMETER, FUNCTION_END, CLOSE)
        if mark == PARAMETER:
            self._state = self._key
        elif mark is not None:
            self._add_arguments("}" if self._count else "{}")
            self._state = self._after if mark == FUNCTION_END else self._text
        return mark is not None

    def _key(self) -> bool:
        key = NAME.match(self._buffer)
        if key is None:
            if self._cannot_be_name():
                self._state = self._between
                return True
            return False
        if not self._ended and key.end() == len(self._buffer):
            return False  # a line break may follow, which is none of the value's
        self._buffer = self._buffer[key.end() :].removeprefix("\n")
        self._schema = self._properties.get(key[1])
        self._value = ""
        self._add_arguments(", " if self._count else "{")
        self._add_arguments(dumps(key[1]) + (': "' if self._is_text() else ": "))
        self._count += 1
        self._state = self._parameter
        return True

    def _parameter(self) -> bool:
        text, mark = self._take_until(f"\n{PARAMETER_END}", PARAMETER_END)
        if self._is_text():
            self._add_arguments(dumps(text)[1:-1])
        else:
            self._value += text
        if mark is not None:
            self._add_arguments('"' if self._is_text() else dumps(value_of(self._value, self._schema)))
            self._state = self._between
        return mark is not None

    def _is_text(self) -> bool:
        return types_of(self._schema) <= {"string"}

    def _cannot_be_name(self) -> bool:
        return len(self._buffer) > LONGEST_NAME or "\n" in self._buffer


def _properties(function: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return properties if isinstance(properties, dict) else {}


def types_of(schema: Any) -> set[str]:
    """The types that a JSON schema allows, as far as it says so; empty: it doesn't."""
    if not isinstance(schema, dict):
        return set()
    declared = schema.get("type")
    types = {declared} if isinstance(declared, str) else {t for t in _list(declared) if isinstance(t, str)}
    for choice in [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]:
        types |= types_of(choice)
    return types or {_kind(value) for value in _list(schema.get("enum"))}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _kind(value: Any) -> str:
    """The JSON type of a value."""
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}
    return kinds.get(type(value), "null")


def value_of(text: str, schema: Any) -> Any:
    """What `text` stands for as a value of `schema`; the text itself where nothing else fits."""
    types = types_of(schema)
    word = text.strip().lower()
    value = CONSTANTS[word] if word in CONSTANTS else loads(text.strip())
    if value is None and word not in NULLS:
        return text
    kind = _kind(value)
    fits = kind in types or (kind == "integer" and "number" in types)
    return value if fits or "string" not in types else text


PLAIN_PARAMETERS = frozenset(
    {"type", "properties", "required", "additionalProperties", "description", "title", "$schema"}
)
PLAIN_TEXT = frozenset({"type", "description", "title", "default", "examples", "anyOf", "oneOf"})
SCALARS = frozenset({"string", "null", "boolean", "integer", "number"})


def forced(tools: Sequence[ForcedTool], at_most: int) -> Form:
    """One call to `at_most`. Where bare text can't keep a schema the call is JSON, which the parser reads as well."""
    return Repeated(one_of([_forced_call(tool) for tool in tools]), Text("\n"), at_most)


def _forced_call(tool: ForcedTool) -> Form:
    parameters = None if tool.arguments.lenient else _parameters(tool.parameters)
    if parameters is None or not _writable(tool.name):
        return tagged_call(tool)
    begin, end = Text(f"\n{FUNCTION}{tool.name}>\n"), Text(f"{FUNCTION_END}\n")
    return in_order(Mark(OPEN), begin, *parameters, end, Mark(CLOSE))


def _parameters(schema: Any) -> list[Form] | None:
    """The parameters one after the other. None: the schema says more than this form can keep."""
    if not isinstance(schema, dict) or not schema.keys() <= PLAIN_PARAMETERS or '"$ref"' in dumps(schema):
        return None
    properties, required = schema.get("properties"), schema.get("required", [])
    if not properties or not isinstance(properties, dict) or not isinstance(required, list):
        return None
    if not all(isinstance(key, str) and key in properties for key in required):
        return None
    written: list[Form] = []
    for key, described in properties.items():
        value = _value_form(described)
        if value is None or not _writable(key):
            return None
        parameter = in_order(Text(f"{PARAMETER}{key}>\n"), value)
        written.append(parameter if key in required else Maybe(parameter))
    return written


def _value_form(schema: Any) -> Form | None:
    """A value and what closes it."""
    closing = Text(f"\n{PARAMETER_END}\n")
    types = types_of(schema)
    if "string" not in types:
        return in_order(Json.of(schema), closing) if types else None
    values = schema.get("enum")
    if types == {"string"} and isinstance(values, list) and all(_writable(value) for value in values):
        return in_order(one_of([Text(value) for value in values]), closing)
    if types <= SCALARS and schema.keys() <= PLAIN_TEXT and all(_is_bare(choice) for choice in _choices(schema)):
        return in_order(UpTo(PARAMETER_END), Text("\n"))
    return None


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    return [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]


def _is_bare(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.keys() <= {"type", "description", "title"}


def _writable(name: Any) -> bool:
    """Whether the parser reads it back as it is."""
    return isinstance(name, str) and name == name.strip() and "<" not in name and bool(NAME.fullmatch(f"{name}>"))
