"""Llama 3.x: `{"name": …, "parameters": {…}}` as the whole reply, with or without `<|python_tag|>` before it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from clawd.model.replies.forms import ForcedTool, Form, Repeated, Text, one_of
from clawd.model.replies.json_calls import JsonCallParser, call_form

TAG = "<|python_tag|>"


class Llama3(JsonCallParser):
    """Without a tag only the tool's name tells a call from an answer in JSON: it must be one of `names`."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self._names = names

    def _accepts(self, name: str) -> bool:
        return name in self._names or self._opening == TAG

    def _begin(self) -> bool:
        text = self._buffer.lstrip()
        if not text and not self._ended:
            return False
        if text.startswith("{"):
            return self._open("")
        self._state = self._text
        return True

    def _text(self) -> bool:
        text, mark = self._take_until(TAG)
        self._say(text)
        return mark is not None and self._open(mark)

    def _after(self) -> bool:
        """Some write several, one behind the other or with `;` between."""
        self._buffer = self._buffer.lstrip(" \t\r\n;,")
        if not self._buffer and not self._ended:
            return False
        if self._buffer.startswith("{"):
            return self._open("")
        self._state = self._text
        return True


def forced(tools: Sequence[ForcedTool], at_most: int) -> Form:
    """One call to `at_most`, which are the whole reply."""
    return Repeated(one_of([call_form(tool, "parameters") for tool in tools]), Text("; "), at_most)
