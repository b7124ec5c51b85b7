"""A conversation, normalised and hashed, so that a request which extends a stored turn can be recognised.

Clients rewrite history: they cut trailing newlines, rename tool-call ids, re-serialise arguments, exchange system
prompts daily. What is compared here survives that. It serves recognition alone: stored and trained is what was fed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clawd.store.codec import content_hash, pack_json
from clawd.store.records import Message

INSTRUCTIONS = ("system", "developer")


def text_of(content: object) -> str:
    """The text of a message's content: a string, nothing, or a list of parts of which the text ones count."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict) and "text" in part)
    return ""


def normalised(message: Message) -> list[Any]:
    """Role, trimmed text and tool calls without their ids."""
    calls = [_call(call) for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    return [message.get("role"), text_of(message.get("content")).strip(), calls]


def _call(call: dict[str, Any]) -> list[Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = arguments.strip()
    return [function.get("name"), arguments]


def conversation_hashes(messages: Iterable[Message]) -> list[str]:
    """For each message but the instructions, the hash of the conversation up to and including it."""
    digests = []
    digest = ""
    for message in messages:
        if message.get("role") in INSTRUCTIONS:
            continue
        digest = content_hash(digest + pack_json(normalised(message)))
        digests.append(digest)
    return digests


def hash_with_response(
    messages: Sequence[Message], response_text: str, tool_calls: Sequence[Mapping[str, Any]] = ()
) -> str:
    """The hash that a continuation of this conversation will carry right after the response.

    `response_text` is without reasoning, which few clients send back; `tool_calls` as in a message.
    """
    response = {"role": "assistant", "content": response_text, "tool_calls": list(tool_calls)}
    return conversation_hashes([*messages, response])[-1]


def request_hash(model: str, messages: Sequence[Message], tools: Sequence[Any] | None) -> str:
    """Tells a retry: the same model, instructions, tools and messages."""
    return content_hash(pack_json([model, [normalised(message) for message in messages], tools or []]))


def after_last_answer(messages: Sequence[Message]) -> list[Message]:
    """What stands behind the last assistant message: the whole request if there is none."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].get("role") == "assistant":
            return list(messages[place + 1 :])
    return list(messages)


def after_turn(messages: Sequence[Message], conversation_hash: str) -> list[Message]:
    """What stands behind the conversation with this hash; [] if it isn't a part of this one."""
    spoken = [message for message in messages if message.get("role") not in INSTRUCTIONS]
    hashes = conversation_hashes(spoken)
    return spoken[hashes.index(conversation_hash) + 1 :] if conversation_hash in hashes else []


def is_next_state(messages: Sequence[Message]) -> bool:
    """Whether there is anything in them that the user or a tool has said."""
    return any(message.get("role") in ("user", "tool") for message in messages)
