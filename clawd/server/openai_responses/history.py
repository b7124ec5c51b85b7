"""Input items to chat messages: what one answer gave as several items is one message again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clawd.server.translating import objects, refused, text_of, text_part
from clawd.store.records import Message

ROLES = ("user", "system", "developer", "assistant")
NOTHING: Message = {"role": "assistant", "content": None}
TEXTS = ("input_text", "output_text", "text", "refusal")


class History:
    """Messages as items are added. Items of an assistant that stand together are the parts of one answer."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._answer: Message | None = None  # the one whose items are being read

    def add(self, item: dict[str, Any], place: str) -> None:
        match item.get("type", "message"):
            case "message":
                self._add_message(item, place)
            case "reasoning":
                self._add_reasoning(item, place)
            case "function_call":
                self._add_call(item, place)
            case "function_call_output":
                self._add_output(item, place)
            case kind:
                raise refused(place, f"an item of type {kind!r} means nothing here", "unsupported_content")

    def messages(self) -> list[Message]:
        self._end_answer()
        return self._messages

    def _add_message(self, item: dict[str, Any], place: str) -> None:
        role = item.get("role")
        if role not in ROLES:
            raise refused(f"{place}.role", f"{role!r} is none of {', '.join(ROLES)}")
        parts = _parts(item.get("content"), f"{place}.content")
        if role != "assistant":
            self._end_answer()
            self._messages.append({"role": role, "content": [text_part(part) for part in parts]})
            return
        answer = self._answer_with(room_for_text=True)
        answer["content"] = (answer["content"] or "") + "".join(parts)

    def _add_reasoning(self, item: dict[str, Any], place: str) -> None:
        texts = [text_of(part, "text", f"{place}.content") for part in objects(item.get("content"), f"{place}.content")]
        if not texts:
            summary = objects(item.get("summary"), f"{place}.summary")
            texts = [text_of(part, "text", f"{place}.summary") for part in summary]
        answer = self._answer_with(room_for_text=True)
        if any(texts):
            answer["reasoning_content"] = answer.get("reasoning_content", "") + "\n".join(texts)

    def _add_call(self, item: dict[str, Any], place: str) -> None:
        name = text_of(item, "name", place)
        if not name:
            raise refused(f"{place}.name", "name the function that was called")
        function = {"name": name, "arguments": text_of(item, "arguments", place)}
        call = {"id": text_of(item, "call_id", place), "type": "function", "function": function}
        self._answer_with(room_for_text=False).setdefault("tool_calls", []).append(call)

    def _add_output(self, item: dict[str, Any], place: str) -> None:
        self._end_answer()
        text = "\n".join(_parts(item.get("output"), f"{place}.output"))
        self._messages.append({"role": "tool", "tool_call_id": text_of(item, "call_id", place), "content": text})

    def _answer_with(self, *, room_for_text: bool) -> Message:
        """The answer that the next item belongs to: a text behind a text is another answer."""
        answer = self._answer
        if answer is not None and room_for_text and answer["content"] is not None and "tool_calls" not in answer:
            self._end_answer()
        if self._answer is None:
            self._answer = {**NOTHING}
        return self._answer

    def _end_answer(self) -> None:
        answer = self._answer
        if answer is not None and answer != NOTHING:  # reasoning that only another model can read
            self._messages.append(answer)
        self._answer = None


def messages_of(items: Sequence[dict[str, Any]]) -> list[Message]:
    """The chat messages of a conversation.

    Raises:
        ApiError: 400 for an item that isn't text, a call or a call's result.
    """
    history = History()
    for place, item in enumerate(items):
        history.add(item, f"input.{place}")
    return history.messages()


def _parts(content: Any, place: str) -> list[str]:
    """The texts of a content."""
    if isinstance(content, str):
        return [content]
    return [_text(part, f"{place}.{number}") for number, part in enumerate(objects(content, place))]


def _text(part: dict[str, Any], place: str) -> str:
    kind = part.get("type")
    if kind not in TEXTS:
        raise refused(place, f"a part of type {kind!r} came to a text model; send text", "unsupported_content")
    return text_of(part, "refusal" if kind == "refusal" else "text", place)
