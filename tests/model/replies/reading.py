"""Feeding parsers and comparing what they give."""

from __future__ import annotations

from collections.abc import Iterable

from clawd.model.replies.deltas import CallArguments, Content, Delta, Reasoning, Reply
from clawd.model.replies.families import FAMILIES
from clawd.model.replies.parser import Parser
from clawd.model.replies.thinking import Staged, Thinking

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "count": {"type": "integer"},
                    "exact": {"type": ["boolean", "null"]},
                    "any": {},
                    "mixed": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                    "list": {"type": "array"},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "run", "parameters": {}}},
]


def parser(family: str, *, opened: bool = False, tools: bool = True) -> Parser:
    made = FAMILIES[family]
    pair = made.thinking[0] if opened and made.thinking else None
    rest = made.calls(TOOLS) if tools else made.without_calls()
    return Staged(Thinking(made.thinking, pair), rest)


def deltas(read: Parser, pieces: Iterable[str]) -> list[Delta]:
    return [delta for piece in pieces for delta in read.feed(piece)] + read.finish()


def reply(family: str, text: str, **more: bool) -> Reply:
    return Reply.of(deltas(parser(family, **more), [text]))


def joined(found: list[Delta]) -> list[Delta]:
    """Neighbours of one kind put together, so that only the order and the text are left to compare."""
    out: list[Delta] = []
    for delta in found:
        last = out[-1] if out else None
        if isinstance(last, Content) and isinstance(delta, Content):
            out[-1] = Content(last.text + delta.text)
        elif isinstance(last, Reasoning) and isinstance(delta, Reasoning):
            out[-1] = Reasoning(last.text + delta.text)
        elif isinstance(last, CallArguments) and isinstance(delta, CallArguments) and last.index == delta.index:
            out[-1] = CallArguments(last.index, last.text + delta.text)
        else:
            out.append(delta)
    return out
