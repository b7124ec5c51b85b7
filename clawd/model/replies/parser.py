"""The frame of all parsers: text in, deltas out, and what can't be decided yet is held back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from clawd.model.replies.deltas import CallArguments, CallBegins, Content, Delta


class Parser(Protocol):
    def feed(self, text: str) -> list[Delta]:
        """What can be told after this piece of text."""

    def finish(self) -> list[Delta]:
        """The rest. Nothing is fed after it."""


class PlainText:
    """Everything is content."""

    def feed(self, text: str) -> list[Delta]:
        return [Content(text)] if text else []

    def finish(self) -> list[Delta]:
        return []


class BufferedParser:
    """A state machine over the text that isn't consumed yet.

    A state is a method that looks at `_buffer`, consumes what it understands, may change `_state`, and returns whether
    it got further; False means that it waits for more text. After `_ended` there is no more to wait for.
    """

    def __init__(self) -> None:
        self._buffer = ""
        self._ended = False
        self._state: Callable[[], bool] = self._begin
        self._out: list[Delta] = []

    def feed(self, text: str) -> list[Delta]:
        self._buffer += text
        return self._run()

    def finish(self) -> list[Delta]:
        self._ended = True
        return self._run()

    def _begin(self) -> bool:
        raise NotImplementedError

    def _run(self) -> list[Delta]:
        while self._state():
            pass
        out, self._out = self._out, []
        return out

    def _take_until(self, *marks: str) -> tuple[str, str | None]:
        """Consume up to the first of `marks` and the mark itself; (the text before it, the mark).

        None: there is none yet. Then all is consumed but an end that may begin one.
        """
        found = [(at, -len(mark), mark) for mark in marks if (at := self._buffer.find(mark)) >= 0]
        if found:
            at, _, mark = min(found)
            text, self._buffer = self._buffer[:at], self._buffer[at + len(mark) :]
            return text, mark
        keep = 0 if self._ended else max(_overlap(self._buffer, mark) for mark in marks)
        cut = len(self._buffer) - keep
        text, self._buffer = self._buffer[:cut], self._buffer[cut:]
        return text, None

    def _may_begin(self, *marks: str) -> bool:
        """Whether more text could make the buffer begin with one of `marks`."""
        return not self._ended and any(mark.startswith(self._buffer) for mark in marks)


def _overlap(text: str, mark: str) -> int:
    """Length of the longest end of `text` that begins `mark`."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0


class CallParser(BufferedParser):
    """Content with calls in it. White space between content and a call belongs to neither."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0
        self._space = ""  # at the content's end, held back: a call may follow
        self._after_call = False

    def finish(self) -> list[Delta]:
        out = super().finish()
        if self._space:
            out.append(Content(self._space))
        return out

    def _say(self, text: str) -> None:
        """Tell content."""
        text = self._space + text
        if self._after_call:
            text = text.lstrip()
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            self._after_call = False
            self._out.append(Content(shown))

    def _begin_call(self, name: str) -> None:
        self._space = ""
        self._after_call = True
        self._out.append(CallBegins(self._calls, name))
        self._calls += 1

    def _add_arguments(self, text: str) -> None:
        if text:
            self._out.append(CallArguments(self._calls - 1, text))
