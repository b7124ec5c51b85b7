"""Calls that are JSON objects, `{"name": …, "arguments": {…}}`: what Hermes, Llama and Mistral have in common."""

from __future__ import annotations

import re
from typing import Any

from clawd.model.replies.forms import ForcedTool, Form, Text, in_order
from clawd.model.replies.json_scan import JsonScanner, dumps, is_text, loads
from clawd.model.replies.parser import CallParser

HEAD = re.compile(
    r'\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"([^"\\]{1,256})"\s*,\s*"(?:arguments|parameters)"\s*:\s*'
    r"(?=\{)"
)
"""The usual beginning, after which the arguments can be told as they come."""

FIRST_KEY = re.compile(r'\s*\{\s*"([^"\\]{0,64})"')
KEYS = frozenset({"name", "arguments", "parameters", "type", "function", "id"})


class JsonCallParser(CallParser):
    """States from a call's opening on. The families say where calls open, and what follows one."""

    close: str | None = None  # the mark that ends a call whatever its arguments look like

    def __init__(self) -> None:
        super().__init__()
        self._opening = ""  # given back as content if no call follows it
        self._scanner = JsonScanner()
        self._scanned = 0

    def _text(self) -> bool:
        """Between calls."""
        raise NotImplementedError

    def _after(self) -> bool:
        """Behind a call's object."""
        raise NotImplementedError

    def _accepts(self, name: str) -> bool:  # noqa: ARG002  families override it
        return True

    def _open(self, opening: str) -> bool:
        """A call's object is expected next in the buffer."""
        self._opening = opening
        self._scanner, self._scanned = JsonScanner(), 0
        self._state = self._object
        return True

    def _object(self) -> bool:
        """Held back until it is clear that it is a call."""
        head = HEAD.match(self._buffer)
        if head and self._accepts(head[1]):
            self._buffer = self._buffer[head.end() :]
            self._begin_call(head[1])
            self._scanner = JsonScanner()
            self._state = self._arguments
            return True
        key = FIRST_KEY.match(self._buffer)
        if head or (key and key[1] not in KEYS):
            return self._reject()
        _, count = self._scanner.scan(self._buffer[self._scanned :])
        self._scanned += count
        if self._scanner.state == "done":
            return self._whole_object()
        return self._reject() if self._ended or self._scanner.state == "broken" else False

    def _whole_object(self) -> bool:
        """A complete object that doesn't begin as usual."""
        call = call_of(loads(self._buffer[: self._scanned]))
        if call is None or not self._accepts(call[0]):
            return self._reject()
        self._buffer = self._buffer[self._scanned :]
        self._begin_call(call[0])
        self._add_arguments(call[1])
        self._state = self._after
        return True

    def _reject(self) -> bool:
        """No call: what was taken for its opening is content, and what follows is read as such."""
        self._say(self._opening)
        self._state = self._text
        return True

    def _arguments(self) -> bool:
        text, count = self._scanner.scan(self._buffer)
        self._buffer = self._buffer[count:]
        self._add_arguments(text)
        if self._scanner.state == "done":
            self._scanner = JsonScanner("}")
            self._state = self._rest_of_object
        elif self._scanner.state == "broken":
            self._state = self._broken_arguments
        return self._scanner.state != "open" or self._state != self._arguments

    def _rest_of_object(self) -> bool:
        """Behind the arguments: usually `}`, sometimes an id or the like, of which clients have their own."""
        _, count = self._scanner.scan(self._buffer)
        self._buffer = self._buffer[count:]
        if self._scanner.state == "open":
            return False
        self._state = self._after
        return True

    def _broken_arguments(self) -> bool:
        """No JSON: the call has begun, so the client gets to see what the model wrote."""
        if self.close is None:
            text, mark = self._buffer, None
            self._buffer = ""
        else:
            text, mark = self._take_until(self.close)
        self._add_arguments(text)
        if mark is not None:
            self._state = self._text
        return mark is not None


def call_of(value: Any) -> tuple[str, str] | None:
    """(name, arguments as JSON text) of an object that is a call; None: it is none."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name or not is_text(name):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if arguments is None:
        return name, "{}"
    if isinstance(arguments, str):
        arguments = loads(arguments)
    return (name, dumps(arguments)) if isinstance(arguments, dict) else None


def call_form(tool: ForcedTool, key: str = "arguments") -> Form:
    """A call's object as the models of these families write it."""
    return in_order(Text(f'{{"name": {dumps(tool.name)}, "{key}": '), tool.arguments, Text("}"))
