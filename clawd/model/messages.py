"""Messages and tools in the form that a chat template takes.

Templates differ in what they want of a call's arguments (an object, or their JSON text), of its id, and of several
calls in one message; many know nothing of tools. What a template takes is found out by trying it on a small
conversation, not from its name. The same messages always come out in the same form, so that a prompt can be rendered
again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from clawd.errors import TemplateError
from clawd.model.order import MessageOrder
from clawd.model.template import ChatTemplate

Message = Mapping[str, Any]

MENTIONS_TOOLS = re.compile(r"\btools\b")
MENTIONS_THINKING = re.compile(r"\.thinking\b|['\"]thinking['\"]")
NINE_CHARACTERS = re.compile(r"[a-zA-Z0-9]{9}")
KEYS = frozenset({"tool_calls", "tool_call_id", "reasoning_content"})  # of which templates have their own ideas
UNREADABLE = "unreadable_arguments"
"""Under this key stand arguments that are no JSON object, for templates that take nothing but an object."""

INSTRUCTIONS = """\
# Tools

You can call functions. These are their signatures, one JSON object a line:
<tools>
{signatures}
</tools>

To call a function, write its name and its arguments as a JSON object between tags, like this:
<tool_call>
{{"name": "function name", "arguments": {{"argument name": "value"}}}}
</tool_call>
What it returns follows between <tool_response> tags."""
"""The Hermes form. It is how Hermes and Qwen models were trained, and small models of other families cope with it."""


class TemplateForm:
    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._order = MessageOrder(template)
        self.takes_tools = MENTIONS_TOOLS.search(template.source) is not None

    def adapt(
        self, messages: Sequence[Message], tools: Sequence[Message] | None
    ) -> tuple[list[Message], Sequence[Message] | None]:
        """Messages and tools as the template takes them."""
        messages = self._order.adapt(messages)
        if not self.takes_tools:
            return self._order.adapt(self._in_hermes_form(messages, tools)), None  # results are a person's words there
        if not any(KEYS & message.keys() for message in messages):
            return messages, tools
        if not self._shows_calls:
            messages = [_with_calls_as_text(message) for message in messages]
        shaped = [self._shaped(message) for message in messages]
        return (shaped if self._takes_several else _one_call_each(shaped)), tools

    def _shaped(self, message: Message) -> Message:
        shaped = dict(message)
        calls = shaped.pop("tool_calls", None)
        if self._wants_thinking and shaped.get("reasoning_content"):
            thinking = shaped.pop("reasoning_content")
            if not (calls and shaped.get("content")):
                shaped["thinking"] = thinking
        if calls:
            shaped["tool_calls"] = [self._call(call, place) for place, call in enumerate(calls)]
        if self._wants_short_ids and shaped.get("tool_call_id"):
            shaped["tool_call_id"] = _short_id(shaped["tool_call_id"])
        return shaped

    def _call(self, call: Message, place: int) -> dict[str, Any]:
        function = call["function"]
        call_id = str(call.get("id") or f"call_{place}")
        return {
            **call,
            "id": _short_id(call_id) if self._wants_short_ids else call_id,
            "type": "function",
            "function": {**function, "arguments": self._arguments(function.get("arguments"))},
        }

    def _arguments(self, given: Any) -> Any:
        value = arguments_object(given)
        if value is None:
            return str(given) if self._takes_text else {UNREADABLE: str(given)}
        return value if self._takes_objects else json.dumps(value, ensure_ascii=False)

    # -- templates that know no tools

    def _in_hermes_form(self, messages: Sequence[Message], tools: Sequence[Message] | None) -> list[Message]:
        written: list[Message] = []
        for place, message in enumerate(messages):
            if message.get("role") != "tool":
                written.append(_with_calls_as_text(message))
                continue
            result = f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"
            if place and messages[place - 1].get("role") == "tool":
                written[-1] = {**written[-1], "content": f"{written[-1]['content']}\n{result}"}
            else:
                written.append({"role": "user", "content": result})
        return self._with_instructions(written, tools) if tools else written

    def _with_instructions(self, messages: list[Message], tools: Sequence[Message]) -> list[Message]:
        text = INSTRUCTIONS.format(signatures="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
        first = messages[0] if messages else {"role": "user", "content": ""}
        if first.get("role") == "system" or not self._order.takes_system:
            joined = (
                f"{first['content']}\n\n{text}" if first.get("role") == "system" else f"{text}\n\n{first['content']}"
            )
            return [{**first, "content": joined}, *messages[1:]]
        return [{"role": "system", "content": f"You are a helpful assistant.\n\n{text}"}, *messages]

    # -- what the template takes

    @cached_property
    def _shows_calls(self) -> bool:
        """Some know tools, and leave calls out when they write the history."""
        return self._takes_objects or self._takes_text

    @cached_property
    def _takes_objects(self) -> bool:
        return self._renders({"x": 1})

    @cached_property
    def _takes_text(self) -> bool:
        return self._renders('{"x')

    @cached_property
    def _wants_short_ids(self) -> bool:
        def renders(call_id: str) -> bool:
            return self._renders({}, call_id) or self._renders("{}", call_id)

        return not renders("call_0123456789abcdef") and renders("abcdefghi")

    @cached_property
    def _takes_several(self) -> bool:
        arguments: Any = {"x": 1} if self._takes_objects else '{"x": 1}'
        return self._renders(arguments, calls=2)

    @cached_property
    def _wants_thinking(self) -> bool:
        source = self._template.source
        return MENTIONS_THINKING.search(source) is not None and "reasoning_content" not in source

    def _renders(self, arguments: Any, call_id: str = "abcdefghi", calls: int = 1) -> bool:
        """Whether a conversation with calls comes out with the last of them in it."""
        ids = [call_id[:-1] + str(number) for number in range(calls)]
        named = [{"name": f"probed_{number}", "arguments": arguments} for number in range(calls)]
        messages: list[Message] = [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": i, "type": "function", "function": f} for i, f in zip(ids, named, strict=True)],
            },
            *({"role": "tool", "tool_call_id": i, "content": "done"} for i in ids),
        ]
        tool = {"name": "other", "description": "Does it.", "parameters": {"type": "object", "properties": {}}}
        try:
            text = self._template.render(messages, [{"type": "function", "function": tool}])
        except TemplateError:
            return False
        return f"probed_{calls - 1}" in text


def arguments_object(given: Any) -> dict[str, Any] | None:
    """A call's arguments as clients send them; nothing and "" are no arguments. None: they are no JSON object."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return None
    return given if isinstance(given, dict) else None


def _with_calls_as_text(message: Message) -> Message:
    """An assistant's calls written out as it would write them."""
    calls = message.get("tool_calls")
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    if not calls:
        return kept
    parts = [str(message.get("content") or "")]
    for call in calls:
        function = call["function"]
        value = arguments_object(function.get("arguments"))
        written = str(function["arguments"]) if value is None else json.dumps(value, ensure_ascii=False)
        parts.append(f'<tool_call>\n{{"name": {json.dumps(function["name"])}, "arguments": {written}}}\n</tool_call>')
    return {**kept, "content": "\n".join(part for part in parts if part)}


def _one_call_each(messages: Sequence[Message]) -> list[Message]:
    """Several calls of a message one after the other, each before its own result."""
    written: list[Message] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        calls = message.get("tool_calls") or []
        if len(calls) < 2:
            written.append(message)
            continue
        results = []
        while place < len(messages) and messages[place].get("role") == "tool":
            results.append(messages[place])
            place += 1
        for number, call in enumerate(calls):
            written.append({**message, "content": "" if number else message.get("content"), "tool_calls": [call]})
            own = [result for result in results if result.get("tool_call_id") == call["id"]]
            written += own
            results = [result for result in results if result not in own]
        written += results
    return written


def _short_id(call_id: str) -> str:
    """Nine letters or digits: Mistral's templates take nothing else."""
    if NINE_CHARACTERS.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]
