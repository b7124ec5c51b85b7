"""Hermes, Qwen 2.5 and 3: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`."""

from __future__ import annotations

from clawd.model.replies.json_calls import JsonCallParser

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
