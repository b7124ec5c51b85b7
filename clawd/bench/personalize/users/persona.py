"""A simulated user: what they ask, what satisfies them, and how they say it. All of it is a function of texts.

The first message never names the preference. A reply can also fail to be an answer at all; a user says that too, as
they would in life.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from clawd.bench.personalize.answer_check import deals_with
from clawd.bench.personalize.tasks import Task

Mood = Literal["satisfied", "corrects", "lost"]


@dataclass(frozen=True)
class Persona:
    name: str
    wish: str  # the ideal hint: what they want, in one sentence
    ask: Callable[[Task, random.Random], str]  # the first message of a session
    satisfies: Callable[[str], bool]  # the preference, of a reply's text
    corrections: tuple[str, ...]
    thanks: tuple[str, ...]
    reply_tokens: int  # the longest reply they wait for: room for what satisfies, and little more
    asks_verdict: bool = False  # so that a bare one is an answer, if not one that they like


class Voice(Protocol):
    """Puts a mood into words."""

    def say(self, persona: Persona, mood: Mood, question: str, reply: str, lot: random.Random) -> str: ...


class ScriptedVoice:
    """One of the persona's own phrasings, by lot."""

    def say(self, persona: Persona, mood: Mood, question: str, reply: str, lot: random.Random) -> str:
        del question, reply
        return lot.choice({"satisfied": persona.thanks, "corrects": persona.corrections, "lost": LOST}[mood])


def mood_of(persona: Persona, task: Task, reply: str) -> Mood:
    """How the user takes a reply. One that isn't about their task pleases nobody, however it is written."""
    if deals_with(task, reply):
        return "satisfied" if persona.satisfies(reply) else "corrects"
    is_verdict = persona.asks_verdict and is_bare_verdict(reply) and not persona.satisfies(reply)
    return "corrects" if is_verdict else "lost"


def is_bare_verdict(reply: str) -> bool:
    """Such as "The grade is B.": it takes up hardly anything of the task and is about it all the same."""
    return len(reply.split()) <= MOST_VERDICT_WORDS and VERDICT.search(reply) is not None


MOST_VERDICT_WORDS = 20
VERDICT = re.compile(r"\d|\b(?:grade|points?|right|wrong|(?:in)?correct|true|false)\b", re.IGNORECASE)

LOST = (
    "That has nothing to do with the problem I gave you.",
    "Hm, this doesn't answer my question. Please look at the problem again.",
    "I can't make sense of this. What about the numbers in the problem?",
    "You didn't say anything about the actual problem.",
    "That isn't an answer. Please go through the problem that I sent.",
    "Sorry, but this is gibberish to me. Please deal with the problem itself.",
    "You lost the thread. Please stick to the problem.",
    "This is off topic, I need something about the problem above.",
    "I don't see the problem in your reply at all.",
    "No, that's just filler. Look at the numbers please.",
    "Where is the part about the problem I sent you?",
    "Please read the problem again, your reply isn't about it.",
)
