"""A conversation, normalised and hashed, so that a request which extends a stored turn can be recognised.

Clients rewrite history: they cut trailing newlines, rename tool-call ids, re-serialise arguments, exchange system
prompts daily, take machine context, thinking and silent answers out, merge a person's messages. What is compared here
survives that. It serves recognition alone: stored and trained is what was fed. The work is linear in the conversation.

The normal form of a message is its role, its text with every run of white space as one blank, and its tool calls
without their ids. Instructions, synthetic messages and what has nothing left in it are skipped; messages of a person
that stand together are one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from clawd.openclaw_text import COMPACTED, RESUMED, is_answered_for, is_note, is_synthetic, said, shown, without_context
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
    """Role, trimmed text and tool calls without their ids: of a request that is compared with itself sent again."""
    return [message.get("role"), text_of(message.get("content")).strip(), _calls(message)]


def _calls(message: Message) -> list[Any]:
    return [_call(call) for call in message.get("tool_calls") or [] if isinstance(call, dict)]


def _call(call: Mapping[str, Any]) -> list[Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = arguments.strip()
    return [function.get("name"), arguments or {}]  # "" and {} are both no arguments


def _plain(message: Message) -> tuple[str, str, list[Any]] | None:
    """Role, text and calls in normal form; None: the message is skipped."""
    role, text = str(message.get("role")), text_of(message.get("content"))
    if role in INSTRUCTIONS:
        return None
    if role == "tool":
        return role, " ".join(text.split()), []
    calls = _calls(message)
    text = said(text) if role == "user" else shown(text)
    if (not text and not calls) or (role == "user" and (is_synthetic(text) or text.startswith(RESUMED))):
        return None
    return role, " ".join(text.split()), calls


def _digests(messages: Iterable[Message]) -> Iterator[tuple[int, str, str]]:
    """Place, role and hash of each message that counts: the hash of the conversation up to and including it."""
    running = hashlib.sha256()  # of the message, or of the person's messages that stand together
    before = ""
    last_role = ""
    for place, message in enumerate(messages):
        plain = _plain(message)
        if plain is None:
            continue
        role, text, calls = plain
        if role == "user" == last_role:
            running.update(f" {text}".encode(errors="surrogatepass"))
        else:
            before = running.hexdigest() if last_role else ""
            running = hashlib.sha256(f"{before}\n{role}\n".encode())
            running.update((pack_json(calls) if calls else "").encode())
            running.update(f"\n{text}".encode(errors="surrogatepass"))
        last_role = role
        yield place, role, running.hexdigest()


def conversation_hashes(messages: Iterable[Message]) -> list[str]:
    """For each message that counts, the hash of the conversation up to and including it."""
    return [digest for _, _, digest in _digests(messages)]


def continued_hashes(messages: Iterable[Message]) -> list[str]:
    """The hashes that a turn may have that this request goes on from: not that of the question it asks."""
    digests = list(_digests(messages))
    if digests and digests[-1][1] != "assistant":
        digests.pop()
    return [digest for _, _, digest in digests]


def hash_with_response(
    messages: Sequence[Message], response_text: str, tool_calls: Sequence[Mapping[str, Any]] = ()
) -> str | None:
    """The hash that a continuation of this conversation will carry right after the response.

    A response that vanishes from history (empty, silent, aborted: give "") leaves the conversation's own. None: there
    is nothing that could be continued.
    """
    response = {"role": "assistant", "content": response_text, "tool_calls": list(tool_calls)}
    hashes = conversation_hashes([*messages, response])
    return hashes[-1] if hashes else None


def request_hash(model: str, messages: Sequence[Message], tools: Sequence[Any] | None) -> str:
    """Tells a retry: the same model, instructions, tools and messages."""
    return content_hash(pack_json([model, [normalised(message) for message in messages], tools or []]))


def begins_anew(messages: Sequence[Message]) -> bool:
    """Whether nothing has been answered in it yet, nor been replaced by a summary."""
    for message in messages:
        plain = _plain(message)
        if plain is not None and (plain[0] == "assistant" or plain[1].startswith(COMPACTED)):
            return False
    return True


def is_compacted(messages: Sequence[Message]) -> bool:
    """Whether a summary stands for the beginning of the conversation."""
    first = next((plain for message in messages if (plain := _plain(message)) is not None), None)
    return first is not None and first[1].startswith(COMPACTED)


def after_last_answer(messages: Sequence[Message]) -> list[Message]:
    """The reaction to the last answer that isn't one to the client's own messages; to none, the whole request."""
    start = 0
    synthetic = False
    for place, message in enumerate(messages):
        if message.get("role") == "user":
            text = said(text_of(message.get("content")))
            synthetic = is_synthetic(text) if text and not is_note(text) else synthetic
        elif message.get("role") == "assistant" and not synthetic and _plain(message) is not None:
            start = place + 1
    return reaction(messages[start:])


def after_turn(messages: Sequence[Message], conversation_hash: str) -> list[Message]:
    """The reaction to the conversation with this hash; [] if it isn't a part of this one."""
    place = next((place for place, _, digest in _digests(messages) if digest == conversation_hash), None)
    return [] if place is None else reaction(messages[place + 1 :])


def reaction(messages: Sequence[Message]) -> list[Message]:
    """What is said in these messages about the answer before them; [] if nothing is.

    Machine context is cut out. What the client asks by itself is left out, with what answers that; where the person has
    been shown such an answer, what they say next is about that one, so nothing is left.
    """
    kept: list[Message] = []
    synthetic = shown_instead = False
    for message in messages:
        role = message.get("role")
        if role in INSTRUCTIONS:
            continue
        if role == "user":
            text = said(text_of(message.get("content")))
            if not text or is_note(text):
                continue
            synthetic, shown_instead = is_synthetic(text), is_answered_for(text)
            if not synthetic:
                kept.append(_without_context(message))
        elif not synthetic:
            kept.append(message)
        elif shown_instead and role == "assistant" and _plain(message) is not None and not _calls(message):
            break  # what follows is said about this one
    return kept if is_next_state(kept) else []


def _without_context(message: Message) -> Message:
    text = text_of(message.get("content"))
    left = without_context(text)
    return message if left == text else {**message, "content": left}


def is_next_state(messages: Sequence[Message]) -> bool:
    """Whether there is anything in them that the user or a tool has said."""
    return any(message.get("role") in ("user", "tool") for message in messages)
