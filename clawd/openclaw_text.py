"""What OpenClaw writes into messages besides people's own words, and how it is told apart from them.

Claude Code's reminders are the one thing of another agent in here: to all who ask, they are machine context as well.

Pure text in, text out, in one pass over it: a marker that a client sends a thousand times costs a thousand finds.
Used where turns are recognised and where they are judged; what was served is stored as it was.
"""

from __future__ import annotations

import re

BEGIN_CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
END_CONTEXT = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"

STABLE_SYSTEM = "<!-- openclaw:"
"""How OpenClaw's system prompt begins."""

COMPACTED = "The conversation history before this point was compacted"
"""How the message begins that stands for a history which a summary has replaced."""

SUBAGENT = "[Subagent Context]"

RESUMED = "Continue the current task from the existing transcript"
"""How the message begins that stands last after a compaction in the middle of a turn; the turn stays the person's."""

SILENT = frozenset({"NO_REPLY", "HEARTBEAT_OK"})
"""Whole replies that nobody gets to see."""

TIME_PREFIX = re.compile(r"^\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d[^\]\n]{0,40}\] ?", re.MULTILINE)
RUNTIME_LINE = re.compile(r"^Runtime: (?=[^\n]*\b(?:agent|session)=)[^\n]*$", re.MULTILINE)

WAKES = ("[OpenClaw heartbeat poll]", "[OpenClaw exec completion]", "[OpenClaw cron wake]", "[OpenClaw session event]")
HEARTBEATS = ("Follow the heartbeat", "Read HEARTBEAT.md")
TASK_DONE = "A background task completed."
RETRIES = (
    "The previous attempt did not produce a user-visible answer.",
    "The previous assistant turn recorded reasoning but did not produce a user-visible answer.",
    "The previous assistant turn completed its tool calls but did not produce a user-visible answer.",
)
MEMORY_FLUSH = "Pre-compaction memory flush"

_CONTEXT_MARK = re.compile(rf"^[ \t]*({BEGIN_CONTEXT}|{END_CONTEXT})[ \t]*\r?$", re.MULTILINE)
_REMINDER = re.compile(r"^[ \t]*<system-reminder>", re.MULTILINE)
_END_REMINDER = "</system-reminder>"
_REPLY_MARK = re.compile(r"\[\[reply_to[^\]\n]{0,200}\]\][ \t]*")
_THINK, _END_THINK = "<think>", "</think>"


def without_context(text: str) -> str:
    """`text` without its blocks of machine context; nothing is left of a message that holds only such.

    Blocks may lie inside each other. One that is never closed goes on to the end. Without any, the text is unchanged.
    """
    text = _without_reminders(text)
    kept, depth, done = [], 0, 0
    for mark in _CONTEXT_MARK.finditer(text):
        if mark[1] == BEGIN_CONTEXT:
            if depth == 0:
                kept.append(text[done : mark.start()])
            depth += 1
        elif depth:
            depth -= 1
            done = mark.end()
    if not kept:
        return text
    if depth == 0:
        kept.append(text[done:])
    return "\n\n".join(part for piece in kept if (part := piece.strip()))


def _without_reminders(text: str) -> str:
    """Without `<system-reminder>` blocks that begin a line; one that is never closed is text like any other."""
    kept, at = [], 0
    while (begin := _REMINDER.search(text, at)) and (end := text.find(_END_REMINDER, begin.end())) >= 0:
        kept.append(text[at : begin.start()])
        at = end + len(_END_REMINDER)
    if not kept:
        return text
    return "\n\n".join(part for piece in [*kept, text[at:]] if (part := piece.strip()))


def said(text: str) -> str:
    """A user's message as the person typed it: no machine context, no Runtime line, no time in front."""
    return TIME_PREFIX.sub("", RUNTIME_LINE.sub("", without_context(text))).strip()


def shown(text: str) -> str:
    """An answer as it comes back in the history: without thinking and reply marks; "" if it doesn't come back."""
    seen = _REPLY_MARK.sub("", without_thinking(text)).strip()
    return "" if seen in SILENT else seen


def without_thinking(text: str) -> str:
    """`text` without `<think>` blocks, also one that the template has opened or that the answer's end cut off."""
    if _END_THINK not in text and _THINK not in text:
        return text
    kept, at = [], 0
    first_end, first_begin = text.find(_END_THINK), text.find(_THINK)
    if first_end >= 0 and not 0 <= first_begin < first_end:
        at = first_end + len(_END_THINK)
    while (begin := text.find(_THINK, at)) >= 0:
        kept.append(text[at:begin])
        end = text.find(_END_THINK, begin)
        if end < 0:
            return "".join(kept)
        at = end + len(_END_THINK)
    return "".join([*kept, text[at:]])


def is_synthetic(said_text: str) -> bool:
    """Whether OpenClaw wrote this user's message by itself, so that it is nobody's reply."""
    return said_text.startswith((*WAKES, *HEARTBEATS, TASK_DONE, *RETRIES, MEMORY_FLUSH))


def is_note(said_text: str) -> bool:
    """Whether this user's message only sets the scene, so that it is nobody's reply; its answer is one all the same."""
    return said_text.startswith((COMPACTED, RESUMED, SUBAGENT))


def is_retry(said_text: str) -> bool:
    """Whether this user's message only asks again for an answer to the person's own message before it."""
    return said_text.startswith(RETRIES)


def is_answered_for(said_text: str) -> bool:
    """Whether what answers this synthetic message is shown to the person, who then reacts to that."""
    return said_text.startswith((TASK_DONE, *RETRIES))
