"""Gemma 4: `<|tool_call>call:name{key:<|"|>text<|"|>,other:1}<tool_call|>`, told when a call is complete."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from clawd.model.replies.forms import ForcedTool, Form, InOrder, Mark, Repeated, Text, in_order, one_of
from clawd.model.replies.json_scan import dumps, loads
from clawd.model.replies.parser import CallParser

OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
CALL = re.compile(r"\s*call:\s*([\w.-]{1,256})\s*(\{.*\})\s*\Z", re.DOTALL)
NAME = re.compile(r"[\w.-]{1,256}")
KEY = re.compile(r"([{,]\s*)([^\s{}\[\],:\"]+)(\s*:)")


class Gemma(CallParser):
    def __init__(self) -> None:
        super().__init__()
        self._call = ""

    def _begin(self) -> bool:
        text, mark = self._take_until(OPEN)
        self._say(text)
        if mark is not None:
            self._call = ""
            self._state = self._in_call
        return mark is not None

    def _in_call(self) -> bool:
        text, mark = self._take_until(CLOSE)
        self._call += text
        if mark is None and not self._ended:
            return False
        call = CALL.match(self._call)
        arguments = as_json(call[2]) if call else None
        if call is None or arguments is None:
            self._say(OPEN + self._call + (mark or ""))
        else:
            self._begin_call(call[1])
            self._add_arguments(arguments)
        self._state = self._begin
        return True


def as_json(text: str) -> str | None:
    """JSON text of Gemma's notation: bare keys, strings between marks of their own. None: it can't be read.

    Plain JSON is taken as well.
    """
    plain = loads(text) if QUOTE not in text else None
    if isinstance(plain, dict):
        return dumps(plain)
    pieces = text.split(QUOTE)
    if len(pieces) % 2 == 0:
        return None
    for place, piece in enumerate(pieces):
        pieces[place] = dumps(piece) if place % 2 else KEY.sub(r'\1"\2"\3', piece)
    try:
        value = json.loads("".join(pieces))
    except (ValueError, RecursionError):
        return None
    return dumps(value)


def forced(tools: Sequence[ForcedTool], at_most: int) -> Form:
    """One call to `at_most`. The arguments are plain JSON: no schema compiler knows Gemma's notation.

    Raises:
        ValueError: a tool's name that this family can't write.
    """
    calls = []
    for tool in tools:
        if not NAME.fullmatch(tool.name):
            raise ValueError(tool.name)
        calls.append(in_order(Mark(OPEN), Text(f"call:{tool.name}"), tool.arguments, Mark(CLOSE)))
    return Repeated(one_of(calls), InOrder(()), at_most)
