"""An answer's content blocks as they grow: what the model says goes in, stream events come out. Pure.

A tool's input is an object for the client, whatever the model wrote. So it is told when it is whole, and checked: the
SDKs give up a whole answer over a piece of it that is no JSON. A tool with `eager_input_streaming` gets it as it comes.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from clawd.model.messages import UNREADABLE, arguments_object
from clawd.model.replies.deltas import CallArguments, CallBegins, Content, Delta, Reasoning

Event = dict[str, Any]


class Blocks:
    """`content` is what a whole answer holds. `name`: of the answer; ids and signatures are made from it."""

    def __init__(self, name: str, eager_tools: Collection[str] = ()) -> None:
        self.content: list[dict[str, Any]] = []
        self.called = False
        self._name = name
        self._eager_tools = eager_tools
        self._open = ""  # the type of the block that is being written
        self._arguments = ""

    def add(self, delta: Delta) -> list[Event]:
        match delta:
            case Content(text) | Reasoning(text) if not text:
                return []
            case Content(text):
                return [*self._in("text", {"text": ""}), self._grow("text", "text_delta", text)]
            case Reasoning(text):
                opened = self._in("thinking", {"thinking": "", "signature": ""})
                return [*opened, self._grow("thinking", "thinking_delta", text)]
            case CallBegins(_, name):
                self.called = True
                return [*self.end(), *self._begin("tool_use", {"id": self._call_id(), "name": name, "input": {}})]
            case CallArguments(_, text):
                self._arguments += text
                return [self._delta("input_json_delta", partial_json=text)] if self._is_eager else []

    def end(self) -> list[Event]:
        """The block that is being written, if any, is whole."""
        events = []
        if self._open == "thinking":
            # Opaque to clients, of whom some leave thinking out of the history if it isn't signed.
            self.content[-1]["signature"] = self._name
            events.append(self._delta("signature_delta", signature=self._name))
        elif self._open == "tool_use":
            written = input_of(self._arguments)
            self.content[-1]["input"] = written
            if self._arguments and not self._is_eager:
                events.append(self._delta("input_json_delta", partial_json=json.dumps(written, ensure_ascii=False)))
            self._arguments = ""
        if self._open:
            events.append({"type": "content_block_stop", "index": len(self.content) - 1})
        self._open = ""
        return events

    @property
    def _is_eager(self) -> bool:
        return self.content[-1]["name"] in self._eager_tools

    def _call_id(self) -> str:
        return f"toolu_{self._name.removeprefix('msg_')}_{len(self.content)}"

    def _in(self, kind: str, fields: dict[str, Any]) -> list[Event]:
        """A block of this kind is being written from here on."""
        return [] if self._open == kind else [*self.end(), *self._begin(kind, fields)]

    def _begin(self, kind: str, fields: dict[str, Any]) -> list[Event]:
        self._open = kind
        self.content.append({"type": kind, **fields})
        return [
            {"type": "content_block_start", "index": len(self.content) - 1, "content_block": {"type": kind, **fields}}
        ]

    def _grow(self, key: str, kind: str, text: str) -> Event:
        self.content[-1][key] += text
        return self._delta(kind, **{key: text})

    def _delta(self, kind: str, **fields: str) -> Event:
        return {
            "type": "content_block_delta",
            "index": len(self.content) - 1,
            "delta": {"type": kind, **fields},
        }


def input_of(arguments: str) -> dict[str, Any]:
    """A call's arguments as an object; under one key if the model wrote none. `translate.arguments_of` undoes it."""
    value = arguments_object(arguments)
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # Python reads more than JSON can say: NaN, half a surrogate pair
        value = None
    return {UNREADABLE: arguments} if value is None else value
