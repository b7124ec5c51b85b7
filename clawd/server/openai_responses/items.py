"""An answer's output items as they grow: what the model says goes in, stream events come out. Pure.

Text and reasoning are items with one part each, a call is one item; an item ends where another begins.
"""

from __future__ import annotations

from typing import Any

from clawd.model.replies.deltas import CallArguments, CallBegins, Content, Delta, Reasoning
from clawd.server.wire import new_call_id

Event = dict[str, Any]

PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
TEXT_EVENTS = {"message": "response.output_text", "reasoning": "response.reasoning_text"}
CALL_EVENTS = "response.function_call_arguments"


class Items:
    """`output` is what a whole answer holds. `name`: the turn's; ids are made from it."""

    def __init__(self, name: str) -> None:
        self.output: list[dict[str, Any]] = []
        self._name = name
        self._is_open = False

    def add(self, delta: Delta) -> list[Event]:
        match delta:
            case Content(text):
                return self._say("message", text)
            case Reasoning(text):
                return self._say("reasoning", text)
            case CallBegins(_, name):
                fields = {"call_id": new_call_id(), "name": name, "arguments": ""}
                return [*self.end(), *self._begin("function_call", fields)]
            case CallArguments(_, text):
                self._item["arguments"] += text
                return [self._event(f"{CALL_EVENTS}.delta", delta=text)]

    def end(self, status: str = "completed") -> list[Event]:
        """The item that is being written, if any, is whole; or `incomplete`, because the answer was cut."""
        if not self._is_open:
            return []
        self._is_open = False
        self._item["status"] = status
        return [*self._whole(), self._item_event("response.output_item.done")]

    @property
    def _item(self) -> dict[str, Any]:
        return self.output[-1]

    def _say(self, kind: str, text: str) -> list[Event]:
        if not text:
            return []
        events = []
        if not self._is_open or self._item["type"] != kind:
            events = [*self.end(), *self._begin_text(kind)]
        self._item["content"][0]["text"] += text
        return [*events, self._text_event("delta", delta=text)]

    def _begin_text(self, kind: str) -> list[Event]:
        fields: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
        events = self._begin(kind, {**fields, "content": []})
        part: dict[str, Any] = {"type": "reasoning_text", "text": ""}
        if kind == "message":
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self._item["content"] = [part]
        return [*events, self._part_event("response.content_part.added", part={**part})]

    def _begin(self, kind: str, fields: dict[str, Any]) -> list[Event]:
        self._is_open = True
        name = f"{PREFIXES[kind]}_{self._name}_{len(self.output)}"
        self.output.append({"id": name, "type": kind, "status": "in_progress", **fields})
        return [self._item_event("response.output_item.added")]

    def _whole(self) -> list[Event]:
        """What was told in pieces, once more in one."""
        if self._item["type"] == "function_call":
            name, arguments = self._item["name"], self._item["arguments"]
            return [self._event(f"{CALL_EVENTS}.done", name=name, arguments=arguments)]
        part = self._item["content"][0]
        return [
            self._text_event("done", text=part["text"]),
            self._part_event("response.content_part.done", part={**part}),
        ]

    def _item_event(self, kind: str) -> Event:
        return {"type": kind, "output_index": len(self.output) - 1, "item": {**self._item}}

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "item_id": self._item["id"], "output_index": len(self.output) - 1, **fields}

    def _part_event(self, kind: str, **fields: Any) -> Event:
        """Of the only part that an item has."""
        return self._event(kind, content_index=0, **fields)

    def _text_event(self, what: str, **fields: Any) -> Event:
        kind = self._item["type"]
        scores: dict[str, Any] = {"logprobs": []} if kind == "message" else {}  # the SDKs want the list
        return self._part_event(f"{TEXT_EVENTS[kind]}.{what}", **fields, **scores)
