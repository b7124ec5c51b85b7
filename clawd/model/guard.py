"""Text that spells a control token stays text, unless the chat template itself wrote it.

A prompt is rendered to one text, and `<|im_end|>` in a person's message looks there like the template's own. So before
rendering, each control token's text in what is rendered (messages, tools, arguments) is exchanged for a character that
occurs nowhere else: templates go on trimming, splitting and searching the rest. In the rendered text that character
marks where no control token may be read. What spells none is rendered and tokenised as if this weren't there.

Two texts that stand side by side may spell a token together: where a text begins or ends like one, its outermost
character is exchanged as well, and given back unless that came true. Not seen is a template that puts a name between
the halves of a token by itself (`<` and `>` around an argument called `s`).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clawd.errors import TemplateError
from clawd.model.control import ControlTexts
from clawd.model.messages import arguments_object

STAND_INS = range(0x20000, 0x2A6D0)
ANY_STAND_IN = re.compile(f"[{chr(STAND_INS[0])}-{chr(STAND_INS[-1])}]")
"""Rare ideographs: characters that no step of a template takes for blanks, cuts off or escapes in Python's way."""

OWN_WORDS = frozenset({"content", "reasoning_content", "thinking"})
"""Fields of an assistant's message that hold what the model wrote."""

BLANKS = " \t\n\v\f\r"  # as C knows them

Change = Callable[[str], str]


@dataclass
class StandIns:
    """The characters that stand for something in one rendering."""

    source: Iterator[str]
    whole: dict[str, str] = field(default_factory=dict)  # control token's text -> character
    edge: dict[str, str] = field(default_factory=dict)  # outermost character -> character

    def of(self, text: str, kind: dict[str, str]) -> str:
        if text not in kind:
            kind[text] = next(self.source)
        return kind[text]


@dataclass(frozen=True)
class Rendered:
    """A rendered prompt. `literal`: parts in which no control token may be read."""

    text: str
    literal: tuple[tuple[int, int], ...] = ()


class Guard:
    """Guards one rendering: give `messages`, `tools` and `variables` to the template, and its text to `restored`.

    `own_tags`: control tokens that the model itself writes in an answer; in an assistant's words they stay such.
    """

    def __init__(
        self,
        control: ControlTexts,
        own_tags: frozenset[str],
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
    ) -> None:
        self._control = control
        self._own_tags = own_tags
        given = [_parsed(message) for message in messages]
        self._stand_ins = StandIns(_unused([given, tools, variables]))
        self.messages = [self._message(message) for message in given]
        self.tools = None if tools is None else [_changed(tool, self._foreign) for tool in tools]
        self.variables = {name: _changed(value, self._foreign) for name, value in variables.items()}

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        is_own = message.get("role") == "assistant"
        return {
            key: value
            if key == "role"
            else _changed(value, self._own if is_own and key in OWN_WORDS else self._foreign)
            for key, value in message.items()
        }

    def _foreign(self, text: str) -> str:
        return self._exchanged(text, frozenset())

    def _own(self, text: str) -> str:
        return self._exchanged(text, self._own_tags)

    def _exchanged(self, text: str, but: frozenset[str]) -> str:
        parts, at = [], 0
        for start, end in self._control.find(text):
            if text[start:end] not in but:
                parts += [text[at:start], self._stand_ins.of(text[start:end], self._stand_ins.whole)]
                at = end
        text = "".join([*parts, text[at:]])
        for place in {self._control.begun_at_end(text), self._control.ended_at_start(text)} - {None}:
            assert place is not None
            text = text[:place] + self._stand_ins.of(text[place], self._stand_ins.edge) + text[place + 1 :]
        return text

    def restored(self, text: str) -> Rendered:
        """What the template would have rendered from the texts as they were, and where control tokens are none."""
        meanings = {
            **{character: (told, False) for told, character in self._stand_ins.edge.items()},
            **{character: (told, True) for told, character in self._stand_ins.whole.items()},
        }
        if not meanings:
            return Rendered(text)
        escaped = {_in_json(character): character for character in meanings}
        pattern = re.compile("|".join(re.escape(form) for form in (*escaped, *meanings)), re.IGNORECASE)
        parts: list[str] = []
        length = at = 0
        whole: list[tuple[int, int]] = []
        edges: list[tuple[int, int]] = []
        for found in pattern.finditer(text):
            character = escaped.get(found[0].lower(), found[0])
            meaning, is_whole = meanings[character]
            told = meaning if character == found[0] else _in_json(meaning)
            parts += [text[at : found.start()], told]
            start = length + found.start() - at
            (whole if is_whole else edges).append((start, start + len(told)))
            length, at = start + len(told), found.end()
        text = "".join([*parts, text[at:]])
        return Rendered(text, self._literal(text, whole, edges))

    def _literal(
        self, text: str, whole: list[tuple[int, int]], edges: list[tuple[int, int]]
    ) -> tuple[tuple[int, int], ...]:
        """Those parts, and every control token that an edge has become a part of."""
        if not edges:
            return tuple(whole)
        places = Places(edges)
        return tuple({*whole, *(token for token in self._control.find(text) if places.touch(*token))})


class Places:
    """Parts of a text. A prompt may have very many: none is looked for by looking at all."""

    def __init__(self, parts: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(parts):
            if self._ends and start < self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._starts.append(start)
                self._ends.append(end)

    def touch(self, start: int, end: int) -> bool:
        """Whether one of them has a character in [start, end)."""
        place = bisect_right(self._ends, start)
        return place < len(self._starts) and self._starts[place] < end


def spans(rendered: Rendered, control: ControlTexts) -> Iterator[tuple[str, bool]]:
    """The text in pieces, and whether control tokens are read in each.

    Where they aren't, a piece reaches from one control token of the template's own to the next: its tokens are those
    of one text, as if the vocabulary didn't know the token that it spells.
    """
    text = rendered.text
    literal = Places(rendered.literal)
    own = [token for token in (control.find(text) if rendered.literal else ()) if not literal.touch(*token)]
    edges = [0, *(edge for token in own for edge in token), len(text)]
    at = 0
    for place, (start, end) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        if literal.touch(start, end):
            if at < start:
                yield text[at:start], True
            piece = text[start:end]
            if place and text[slice(*own[place - 1])] in control.strip_right:
                piece = piece.lstrip(BLANKS)
            if place < len(own) and text[slice(*own[place])] in control.strip_left:
                piece = piece.rstrip(BLANKS)
            yield piece, False
            at = end
    if at < len(text):
        yield text[at:], True


def _parsed(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the arguments of its calls as objects where they are such: JSON has other ways to spell a token."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_parsed_call(call) for call in calls]}


def _parsed_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call["function"]
    value = arguments_object(function.get("arguments"))
    return call if value is None else {**call, "function": {**function, "arguments": value}}


def _changed(value: Any, change: Change) -> Any:
    """`value` with every text in it changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_changed(key, change): _changed(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_changed(item, change) for item in value]
    return value


def _unused(given: Any) -> Iterator[str]:
    """Characters that occur nowhere in it."""
    taken: set[str] = set()

    def note(text: str) -> str:
        taken.update(ANY_STAND_IN.findall(text))
        return text

    _changed(given, note)
    for code in STAND_INS:
        if chr(code) not in taken:
            yield chr(code)
    raise TemplateError("The request uses every character that there is: shorten it.")


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]
