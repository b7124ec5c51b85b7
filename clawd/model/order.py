"""Whose turn it is, as a chat template wants it.

Clients put instructions in the middle of a conversation and several messages of a person one after the other. Some
templates refuse that, or leave a message out. For those, instructions that they don't take become a person's words,
and messages of one role that they don't take in a row become one. What a template takes is found out by trying it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from clawd.errors import TemplateError
from clawd.model.template import ChatTemplate

Message = Mapping[str, Any]

PROBES = ("first probe", "second probe", "third probe", "fourth probe")


class MessageOrder:
    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    def adapt(self, messages: Sequence[Message]) -> list[Message]:
        """The messages in an order that the template takes; as they are if it takes them all."""
        named = [self._named(message, place) for place, message in enumerate(messages)]
        joined: list[Message] = []
        for message in named:
            if joined and self._must_join(joined[-1], message):
                joined[-1] = {**joined[-1], "content": f"{joined[-1]['content']}\n\n{message['content']}"}
            else:
                joined.append(message)
        return joined

    def _named(self, message: Message, place: int) -> Message:
        is_taken = message.get("role") != "system" or (self._takes_late_system if place else self.takes_system)
        return message if is_taken else {**message, "role": "user"}

    def _must_join(self, before: Message, message: Message) -> bool:
        role = message.get("role")
        if role != before.get("role") or not all(isinstance(each.get("content"), str) for each in (before, message)):
            return False
        if role == "user":
            return not self._takes_users_in_a_row
        is_plain = not (before.get("tool_calls") or message.get("tool_calls"))
        return role == "assistant" and is_plain and not self._takes_assistants_in_a_row

    @cached_property
    def takes_system(self) -> bool:
        return self._renders("system", "user")

    @cached_property
    def _takes_late_system(self) -> bool:
        return self._renders("user", "assistant", "system", "user")

    @cached_property
    def _takes_users_in_a_row(self) -> bool:
        return self._renders("user", "user")

    @cached_property
    def _takes_assistants_in_a_row(self) -> bool:
        return self._renders("user", "assistant", "assistant", "user")

    def _renders(self, *roles: str) -> bool:
        """Whether all that these say comes out, in their order."""
        messages = [{"role": role, "content": text} for role, text in zip(roles, PROBES, strict=False)]
        try:
            rendered = self._template.render(messages)
        except TemplateError:
            return False
        places = [rendered.find(message["content"]) for message in messages]
        return -1 not in places and places == sorted(places)
