"""What a rule about replies is made of. The rules themselves stand in `clawd.learner.judge.phrases`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    THANKS = auto()  # +1, but mere politeness before "but"
    PRAISE = auto()  # +1
    COMPLAINT = auto()  # -1, whatever else is said
    DIRECTIVE = auto()  # a hint; -1 unless it comes with praise


class HintFrom(Enum):
    NOTHING = auto()
    CLAUSE = auto()  # says itself what to do
    REST = auto()  # only if the user goes on: "that's wrong" alone corrects nothing


@dataclass(frozen=True)
class Rule:
    name: str
    kind: Kind
    pattern: re.Pattern[str]
    hint: HintFrom = HintFrom.NOTHING
    veto: bool = False  # unmistakable: stands against any number of a judge model's votes
    about_it: bool = False  # "it" must mean the response, not something told just before
    answers_question: bool = False  # no reaction if the response ended with a question
    ends_topic: bool = False  # mere acceptance if a new request follows
    alone: bool = False  # could be about anything: none if the reply asks something that is no reaction
    standing: bool = False  # counts after a new request too: "from now on …"


def any_of(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{phrase})" for phrase in phrases), re.IGNORECASE)


def words(text: str) -> str:
    """A pattern for any one of the words, a word being a pattern without spaces; `_` stands for a space."""
    return "(?:" + "|".join(text.split()).replace("_", " ") + r")\b"
