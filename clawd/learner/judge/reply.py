"""A user's reply, cut into sentences and clauses for the rules.

Matching is done on a masked copy of the same length: code, quotations and phrases that only look like a reaction are
blank there, so that a hit's place is valid in the original text too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clawd.openclaw_text import said
from clawd.store.records import Message

NOT_THEIR_WORDS = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`"  # code
    r"|^[ \t]*>[^\n]*$"  # a quoted message
    r"|^[ \t]*\[?(?:system|assistant|user|human|ai|developer)\]?[ \t]*:[^\n]*$"  # a transcript, or what plays one
    r"|\[[^\]\n]{0,60}\]"
    r'|"[^"\n]{1,300}"|“[^”\n]{1,300}”|«[^»\n]{1,300}»|„[^“”\n]{1,300}[“”]',
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
MATERIAL = re.compile(
    r"(?:\b(?:translate|correct|proofread|check|shorten|summari[sz]e|rewrite|rephrase|paraphrase|improve|rate"
    r"|grade|review|edit"
    r"|fix|convert|say|said|says|wrote|writes|told me|asked me|traduis|traduce|corrige|[üu]bersetze?|korrigiere?)\b"
    r"(?! (?:it|that) )[^:.?!\n]{0,80}|\bhere (?:it is|is (?:my|the) \w+|are (?:my|the) \w+)|\bhere's (?:my"
    r"|the) \w+):[ \n]\s*\S.*",
    re.DOTALL | re.IGNORECASE,
)
"""What is given to work on: "Translate into French: …"."""

SENTENCE_END = re.compile(r"[.!?…]+(?=\s|$)|\n+|;")
CLAUSE_BREAK = re.compile(
    r"(?P<hard>,\s+(?=please\b|bitte\b)|,?\s+(?:but|however|though|yet|except(?: that)?|aber|nur|mais|pero|però"
    r"|ma)\b,?\s*"
    r"|,\s+so\s+(?=\w)"
    r"|\s+[-–—]+\s+|\s*—\s*|:\s+)|,\s*|\s+and\s+",
    re.IGNORECASE,
)
OPENER = re.compile(
    r"(?:well|hmm+|um+|uh+|oh|ah|ok|okay|hey|hi|hello|hallo|sorry|look|listen|man|dude|please|pls|bitte|also"
    r"|and|but|so"
    r"|again|actually|honestly|frankly|sadly|unfortunately|i think|i'm afraid|i feel(?: like)?|i guess|come on|just"
    r"|wait|still|yeah|yep|yes|no|nope|nah|nein|ja|thanks(?: a lot)?|thank you|danke|that said|however|though"
    r"|one thing"
    r"|one note|small note|quick note|btw|by the way|in general|ugh|argh|wow|now|then|next|great|nice|good|cool"
    r"|fine|almost(?: there)?|close|personally|overall|maybe|perhaps|to be honest|tbh|imo"
    r"|in my opinion|for (?:my|our) taste|(?:yes|yeah) ?please|merci|gracias|muchas gracias|non|oui|gut|bien"
    r"|leider|also|i mean"
    r"|as an? \w+(?: \w+)?(?=,? (?:i|we)\b)|finally|sure)\b"
    r"[\s,.:!–—-]*|[¡¿]\s*",
    re.IGNORECASE,
)
LONGEST_LEAD_WORDS = 3
LONGEST_READ = 4000  # characters: a reaction comes first
MOST_OPENERS = 6  # of a clause
MOST_CLAUSES = 8  # of a sentence


@dataclass(frozen=True)
class Clause:
    """Part of a sentence. `starts`: its first character, then where it begins without one, two, … opening words."""

    starts: tuple[int, ...]
    end: int
    contrast: bool  # `but`, `however` or a dash stands before it


@dataclass(frozen=True)
class Sentence:
    start: int
    end: int
    is_question: bool
    clauses: tuple[Clause, ...]


@dataclass(frozen=True)
class Reply:
    text: str
    masked: str  # same length
    sentences: tuple[Sentence, ...]


def text_of(content: Any) -> str:
    """The text of a message's content, which may be a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def texts_of_role(messages: list[Message], role: str) -> list[str]:
    texts = [text_of(message.get("content")) for message in messages if message.get("role") == role]
    return [text for each in texts if (text := said(each) if role == "user" else each).strip()]


def read(text: str, harmless: re.Pattern[str]) -> Reply:
    """Cut the beginning of `text` up; what `harmless` matches is masked like a quotation."""
    plain = text[:LONGEST_READ].replace("’", "'").replace("‘", "'")
    masked = harmless.sub(_blank, MATERIAL.sub(_blank_after_colon, NOT_THEIR_WORDS.sub(_blank, plain)))
    return Reply(plain, masked, tuple(_sentences(masked)))


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _blank_after_colon(match: re.Match[str]) -> str:
    told, colon, material = match.group().partition(":")
    return told + colon + re.sub(r"[^\n]", " ", material)


def _sentences(masked: str) -> Iterator[Sentence]:
    start = 0
    for end in SENTENCE_END.finditer(masked):
        if masked[start : end.start()].strip():
            yield _sentence(masked, start, end.start(), "?" in end.group())
            start = end.end()
    if masked[start:].strip():
        yield _sentence(masked, start, len(masked), False)


def _sentence(masked: str, start: int, end: int, is_question: bool) -> Sentence:
    start += len(masked[start:end]) - len(masked[start:end].lstrip())
    return Sentence(start, end, is_question, tuple(_clauses(masked, start, end)))


def _clauses(masked: str, start: int, end: int) -> Iterator[Clause]:
    """The sentence itself, and what follows a contrast, or a few leading words and a comma.

    After longer ones a comma continues a thought: "when I was young, you didn't …" is no complaint.
    """
    yield Clause(_starts(masked, start, end), end, contrast=False)
    clauses = 1
    for found in CLAUSE_BREAK.finditer(masked, start, end):
        hard = found.group("hard") is not None
        if clauses == MOST_CLAUSES:
            return
        if found.end() < end and (hard or len(masked[start : found.start()].split()) <= LONGEST_LEAD_WORDS):
            clauses += 1
            yield Clause(_starts(masked, found.end(), end), end, contrast=hard)


def _starts(masked: str, start: int, end: int) -> tuple[int, ...]:
    starts = [start]
    while len(starts) <= MOST_OPENERS and (opener := OPENER.match(masked, starts[-1], end)):
        starts.append(opener.end())
    return tuple(starts)
