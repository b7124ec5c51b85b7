"""Mistral: `[TOOL_CALLS] [{"name": …, "arguments": {…}}, …]`, later `[TOOL_CALLS]name[ARGS]{…}`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clawd.model.replies.forms import ForcedTool, Form, InOrder, Mark, Maybe, Repeated, Text, in_order, one_of
from clawd.model.replies.json_calls import JsonCallParser, call_form
from clawd.model.replies.json_scan import JsonScanner

MARK, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
NAMED = re.compile(r"\s*([\w.-]{1,256})\s*(?:\[CALL_ID\]\s*\w*\s*)?(?:\[ARGS\])?\s*(?=\{)")
MAY_BE_NAMED = re.compile(r"\s*[\w.-]{0,256}\s*(?:\[(?:[A-Z_]*\]?)?\s*\w{0,64}\s*)*\Z")


NAME = re.compile(r"[\w.-]{1,256}")


class Mistral(JsonCallParser):
    def __init__(self) -> None:
        super().__init__()
        self._in_array = False

    def _begin(self) -> bool:
        self._state = self._text
        return True

    def _text(self) -> bool:
        text, mark = self._take_until(MARK)
        self._say(text)
        if mark is None:
            return False
        self._opening = mark
        self._state = self._opened
        return True

    def _opened(self) -> bool:
        text = self._buffer.lstrip()
        if text.startswith("["):
            self._opening += self._buffer[: len(self._buffer) - len(text) + 1]
            self._buffer = text[1:]
            self._in_array = True
            return self._open(self._opening)
        named = NAMED.match(self._buffer)
        if named:
            self._buffer = self._buffer[named.end() :]
            self._begin_call(named[1])
            self._in_array = False
            self._scanner = JsonScanner()
            self._state = self._arguments
            return True
        return self._reject() if self._ended or not MAY_BE_NAMED.match(self._buffer) else False

    def _rest_of_object(self) -> bool:
        if self._in_array:
            return super()._rest_of_object()
        self._state = self._text  # named arguments stand for themselves
        return True

    def _after(self) -> bool:
        """Within the array."""
        self._buffer = self._buffer.lstrip()
        if not self._buffer and not self._ended:
            return False
        if self._buffer.startswith(","):
            self._buffer = self._buffer[1:]
            return self._open(",")
        self._buffer = self._buffer.removeprefix("]")
        self._state = self._text
        return True


def forced(tools: Sequence[ForcedTool], at_most: int, template: str) -> Form:
    """One call to `at_most`, in the later notation if the template writes that and the names allow it."""
    if ARGS in template and all(NAME.fullmatch(tool.name) for tool in tools):
        calls = [in_order(Mark(MARK), Text(tool.name), Mark(ARGS), tool.arguments) for tool in tools]
        return Repeated(one_of(calls), InOrder(()), at_most)
    listed = Repeated(one_of([call_form(tool) for tool in tools]), Text(", "), at_most)
    return in_order(Mark(MARK), Maybe(Text(" ")), Text("["), listed, Text("]"))
