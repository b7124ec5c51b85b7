"""Hermes, Qwen 2.5 and 3: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`."""

from __future__ import annotations

from collections.abc import Sequence

from clawd.model.replies.forms import ForcedTool, Form, Mark, Repeated, Text, in_order, one_of
from clawd.model.replies.json_calls import JsonCallParser, call_form

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class Hermes(JsonCallParser):
    close = CLOSE

    def _begin(self) -> bool:
        self._state = self._text
        return True

    def _text(self) -> bool:
        text, mark = self._take_until(OPEN)
        self._say(text)
        return mark is not None and self._open(mark)

    def _after(self) -> bool:
        """The closing tag; models that forget it or write a brace too many are forgiven."""
        self._buffer = self._buffer.lstrip().lstrip("}").lstrip()
        if self._may_begin(CLOSE):
            return False
        self._buffer = self._buffer.removeprefix(CLOSE)
        self._state = self._text
        return True


def forced(tools: Sequence[ForcedTool], at_most: int) -> Form:
    """One call to `at_most`."""
    return Repeated(one_of([tagged_call(tool) for tool in tools]), Text("\n"), at_most)


def tagged_call(tool: ForcedTool) -> Form:
    return in_order(Mark(OPEN), Text("\n"), call_form(tool), Text("\n"), Mark(CLOSE))
