"""What kind of turn a request is, read off the request itself: one line a rule, the main line if none applies.

A side turn is work that a client does for itself: it is served and stored, it is no reaction to the answer before, and
nothing is learnt from it. A rule must not take a person's message for such work, so each looks for words that a client
writes, in the place where it writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from clawd.errors import NameRefused
from clawd.openclaw_text import (
    COMPACTED,
    HEARTBEATS,
    MEMORY_FLUSH,
    RESUMED,
    RETRIES,
    RUNTIME_LINE,
    STABLE_SYSTEM,
    TASK_DONE,
    TIME_PREFIX,
    WAKES,
    said,
    without_context,
)
from clawd.server.sessions.conversation import INSTRUCTIONS, text_of
from clawd.store.records import Message, TurnKind

TURN_TYPE_HEADER = "x-turn-type"
CLIENT_HEADER = "x-clawd-client"
"""`openclaw` from a provider entry that `clawd connect openclaw` wrote. Nothing depends on it but the last rule."""

KINDS: dict[str, TurnKind] = {"main": "main", "side": "side"}
TITLES = ("Generate a concise session title", "You are a title generator")
MODEL_IDENTITY = "Current model identity:"
SUMMARY = "Your task is to create a detailed summary of the conversation so far"
CURRENT_TIME = re.compile(r"^Current time:", re.MULTILINE)


@dataclass(frozen=True)
class Asked:
    """What the rules look at."""

    system: str
    user: str  # the newest user's message with words in it, as `said`
    has_time: bool  # OpenClaw's time stands in front of it
    runtime: str  # the Runtime line; "" if there is none
    has_tools: bool
    from_openclaw: bool  # as the provider entry's header says


@dataclass(frozen=True)
class Rule:
    name: str
    applies: Callable[[Asked], bool]


RULES: tuple[Rule, ...] = (
    Rule("compaction", lambda asked: asked.system.startswith("You are a context summarization assistant")),
    # Claude Code asks these at the end of the person's own conversation.
    Rule("compaction", lambda asked: asked.user.startswith(("Your task is", "CRITICAL:")) and SUMMARY in asked.user),
    Rule("suggestion", lambda asked: asked.user.startswith("[SUGGESTION MODE:")),
    Rule("title", lambda asked: asked.system.startswith(TITLES)),
    Rule("chat task", lambda asked: asked.user.startswith("### Task:") and "<chat_history>" in asked.user),
    Rule(
        "memory flush",
        lambda asked: asked.user.startswith(MEMORY_FLUSH) or ":internal-session-effects:" in asked.runtime,
    ),
    Rule("heartbeat", lambda asked: not asked.has_time and asked.user.startswith((WAKES[0], *HEARTBEATS))),
    Rule("heartbeat", lambda asked: not asked.has_time and "reply HEARTBEAT_OK" in asked.user),
    Rule("heartbeat", lambda asked: _is_openclaw(asked) and not asked.has_time and _tells_time(asked.user)),
    Rule("wake", lambda asked: asked.user.startswith(WAKES)),
    Rule("sub-agent done", lambda asked: asked.user.startswith(TASK_DONE)),
    Rule("retry of an empty answer", lambda asked: asked.user.startswith(RETRIES)),
    # Its request is a plain client's: only where the provider entry says that OpenClaw sent it can it be told.
    Rule("model run", lambda asked: asked.from_openclaw and not asked.has_tools and _is_bare(asked.system)),
)


def _is_openclaw(asked: Asked) -> bool:
    return asked.system.startswith(STABLE_SYSTEM)


def _is_bare(system: str) -> bool:
    """OpenClaw's model runs have no instructions; through its gateway, the one line that names the model."""
    return not system or (system.startswith(MODEL_IDENTITY) and "\n" not in system.strip())


def _tells_time(text: str) -> bool:
    return CURRENT_TIME.search(text) is not None and not text.startswith(COMPACTED)


def turn_kind(headers: Mapping[str, str], messages: Sequence[Message], *, has_tools: bool) -> tuple[TurnKind, str]:
    """The kind, and where it is known from: `header`, a rule's name, or `default`.

    Raises NameRefused for a type that doesn't exist.
    """
    told = headers.get(TURN_TYPE_HEADER)
    if told is not None:
        kind = KINDS.get(told.strip().lower())
        if kind is None:
            raise NameRefused(f"{TURN_TYPE_HEADER}: {told!r} is no turn type: send `main` or `side`.")
        return kind, "header"
    asked = look_at(headers, messages, has_tools=has_tools)
    rule = next((rule for rule in RULES if rule.applies(asked)), None)
    return ("side", rule.name) if rule else ("main", "default")


def look_at(headers: Mapping[str, str], messages: Sequence[Message], *, has_tools: bool) -> Asked:
    system = next((text_of(message.get("content")) for message in messages if message.get("role") in INSTRUCTIONS), "")
    users = (
        without_context(text_of(each.get("content"))).strip()
        for each in reversed(messages)
        if each.get("role") == "user"
    )
    newest = next((text for text in users if text and not said(text).startswith(RESUMED)), "")
    return Asked(
        system=system.lstrip(),
        user=said(newest),
        has_time=TIME_PREFIX.match(newest) is not None,
        runtime=runtime_line(messages) or "",
        has_tools=has_tools,
        from_openclaw=headers.get(CLIENT_HEADER, "").strip().lower() == "openclaw",
    )


def runtime_line(messages: Sequence[Message]) -> str | None:
    """OpenClaw's Runtime line, in the instructions or in the first user's message."""
    for message in messages:
        if message.get("role") in (*INSTRUCTIONS, "user"):
            if found := RUNTIME_LINE.search(text_of(message.get("content"))):
                return found[0]
            if message.get("role") == "user":
                return None
    return None


def is_openclaw(headers: Mapping[str, str], messages: Sequence[Message]) -> bool:
    """Whether OpenClaw sent this, by its system prompt or its provider entry's header."""
    asked = look_at(headers, messages, has_tools=False)
    return asked.from_openclaw or _is_openclaw(asked)
