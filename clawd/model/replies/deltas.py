"""What parsers give: the parts of a reply in the order of the text, and the whole that they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Content:
    text: str


@dataclass(frozen=True)
class Reasoning:
    text: str


@dataclass(frozen=True)
class CallBegins:
    index: int  # from 0, in the order of the text
    name: str


@dataclass(frozen=True)
class CallArguments:
    """The next piece of a call's arguments, which are JSON text if the model wrote them well."""

    index: int
    text: str


Delta = Content | Reasoning | CallBegins | CallArguments


@dataclass
class Call:
    name: str
    arguments: str = ""


@dataclass
class Reply:
    """A reply put together."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)

    @classmethod
    def of(cls, deltas: Iterable[Delta]) -> Reply:
        reply = cls()
        for delta in deltas:
            reply.add(delta)
        return reply

    def tool_calls(self) -> list[dict[str, Any]]:
        """As in a message, but for the ids, which are the client's business."""
        return [
            {"type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in self.calls
        ]

    def add(self, delta: Delta) -> None:
        match delta:
            case Content(text):
                self.content += text
            case Reasoning(text):
                self.reasoning += text
            case CallBegins(_, name):
                self.calls.append(Call(name))
            case CallArguments(index, text):
                self.calls[index].arguments += text
