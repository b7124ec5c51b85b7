"""gpt-oss: messages on channels:
`<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.

A message to `functions.name` is a call, and the analysis channel is reasoning. All else is content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from clawd.model.replies.deltas import Content, Reasoning
from clawd.model.replies.forms import ForcedTool, Form, Mark, Maybe, Text, UpTo, in_order, one_of
from clawd.model.replies.parser import CallParser

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
TO = "to="
CONSTRAIN, END = "<|constrain|>", "<|end|>"
ENDS = (END, "<|call|>", "<|return|>")
NAME = re.compile(r"[\w.-]{1,256}")
RECIPIENT = re.compile(r"\bto=functions\.([\w.-]{1,256})")


class Harmony(CallParser):
    """`with_calls` False: no tools were offered, so that a message to one is content."""

    def __init__(self, with_calls: bool) -> None:
        super().__init__()
        self._with_calls = with_calls
        self._header = ""
        self._kind = "content"
        self._told: set[str] = set()

    def _begin(self) -> bool:
        """The prompt ends within a header, behind the role, where a recipient may follow."""
        text = self._buffer.lstrip()
        if not self._ended and TO.startswith(text):
            return False
        self._state = self._in_header if text.startswith(TO) else self._outside
        return True

    def _outside(self) -> bool:
        text, mark = self._take_until(CHANNEL, START)
        if text:
            self._tell("content", text)
        if mark is not None:
            self._header = mark
            self._state = self._in_header
        return mark is not None

    def _in_header(self) -> bool:
        text, mark = self._take_until(MESSAGE)
        self._header += text
        if mark is None:
            if self._ended and self._header:
                self._tell("content", self._header)
                self._header = ""
            return False
        recipient = RECIPIENT.search(self._header)
        if recipient and self._with_calls:
            self._begin_call(recipient[1])
            self._kind = "call"
        else:
            self._kind = "reasoning" if f"{CHANNEL}analysis" in self._header else "content"
            if self._kind in self._told:
                self._tell(self._kind, "\n\n")
        self._state = self._in_message
        return True

    def _in_message(self) -> bool:
        text, mark = self._take_until(*ENDS, START)
        if text:
            self._tell(self._kind, text)
        if mark is not None:
            self._header = mark
            self._state = self._in_header if mark == START else self._outside
        return mark is not None

    def _tell(self, kind: str, text: str) -> None:
        self._told.add(kind)
        if kind == "call":
            self._add_arguments(text)
        elif kind == "reasoning":
            self._out.append(Reasoning(text))
        else:
            self._out.append(Content(text))


ANALYSIS = Maybe(
    in_order(Mark(CHANNEL), Text("analysis"), Mark(MESSAGE), UpTo(END), Mark(START), Text("assistant")),
)


def forced(tools: Sequence[ForcedTool]) -> Form:
    """One call, after an analysis or not: a call ends the model's turn.

    Raises:
        ValueError: a tool's name that this family can't write.
    """
    calls = []
    for tool in tools:
        if not NAME.fullmatch(tool.name):
            raise ValueError(tool.name)
        header = Text(f"commentary to=functions.{tool.name} ")
        calls.append(in_order(Mark(CHANNEL), header, Mark(CONSTRAIN), Text("json"), Mark(MESSAGE), tool.arguments))
    return in_order(ANALYSIS, one_of(calls))


def answer(form: Form) -> Form:
    """`form` as the content of the reply, after an analysis or not."""
    return in_order(ANALYSIS, Mark(CHANNEL), Text("final"), Mark(MESSAGE), form)
