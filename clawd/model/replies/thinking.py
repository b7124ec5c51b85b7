"""Reasoning at the beginning of a reply, between tags; the model or its template opens it."""

from __future__ import annotations

from clawd.model.replies.deltas import Content, Delta, Reasoning
from clawd.model.replies.parser import BufferedParser, Parser

Tags = tuple[str, str]


class Thinking(BufferedParser):
    """Cuts the reasoning off; the rest comes as content, for the next parser to read.

    `opened`: the pair whose opening tag stands at the prompt's end already. Reasoning that is never closed is all that
    there is of the reply. White space at the ends of reasoning, and between it and the answer, is left out.
    """

    def __init__(self, pairs: tuple[Tags, ...], opened: Tags | None = None) -> None:
        super().__init__()
        self._pairs = pairs
        self._opened = opened
        self._close = ""
        self._space = ""
        self._told = False

    def _begin(self) -> bool:
        text = self._buffer.lstrip()
        for opening, closing in self._pairs:
            if text.startswith(opening):
                self._buffer = text[len(opening) :]
                return self._enter(closing)
        if not self._ended and any(opening.startswith(text) for opening, _ in self._pairs):
            return False
        if self._opened is not None:
            return self._enter(self._opened[1])
        self._state = self._rest
        return True

    def _enter(self, closing: str) -> bool:
        self._close = closing
        self._state = self._inside
        return True

    def _inside(self) -> bool:
        text, mark = self._take_until(self._close)
        text = self._space + text if self._told else text.lstrip()
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            self._told = True
            self._out.append(Reasoning(shown))
        if mark is not None:
            self._state = self._after
        return mark is not None

    def _after(self) -> bool:
        self._buffer = self._buffer.lstrip()
        if not self._buffer:
            return False
        self._state = self._rest
        return True

    def _rest(self) -> bool:
        if self._buffer:
            self._out.append(Content(self._buffer))
            self._buffer = ""
        return False


class Staged:
    """Reasoning first, then what `rest` makes of the text behind it."""

    def __init__(self, thinking: Thinking, rest: Parser) -> None:
        self._thinking = thinking
        self._rest = rest

    def feed(self, text: str) -> list[Delta]:
        return self._pass_on(self._thinking.feed(text))

    def finish(self) -> list[Delta]:
        return [*self._pass_on(self._thinking.finish()), *self._rest.finish()]

    def _pass_on(self, deltas: list[Delta]) -> list[Delta]:
        out: list[Delta] = []
        for delta in deltas:
            out += self._rest.feed(delta.text) if isinstance(delta, Content) else [delta]
        return out
