"""Whether a reply only asks, more or less, what the response was to answer.

Similarity alone would take "the capital of Spain?" for a repetition of "the capital of France?": a content word that is
exchanged for another, or one that asks for variation, makes a new question.
"""

from __future__ import annotations

import re

from rapidfuzz import fuzz

SIMILAR = 80.0  # of 100
SAME_WORD = 85.0
SHORTEST_FUZZY_WORD = 5  # letters; shorter ones must agree, and digits always
LONGEST_READ = 4000  # characters
FEWEST_CONTENT_WORDS = 2  # "continue" and "next" may be said again and again

VARIATION = frozenset(("another", "more", "different", "other", "also", "next", "second", "again", "one"))
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an the i you he she it we they me my your our is are was were be do does did can could would will should so
        please to of in on at for from with and or but that this these those what which who how when where why about
        want know tell give ich du der die das ein eine ist sind bitte und oder was wie wo wer""",
    )
)


def is_asked_again(asked: str, reply: str) -> bool:
    """Whether `reply` repeats `asked`, the user's message that was answered."""
    before, after = content_words(asked[:LONGEST_READ]), content_words(reply[:LONGEST_READ])
    if len(before) < FEWEST_CONTENT_WORDS or after & VARIATION - before:
        return False
    lost = {word for word in before if not _is_among(word, after)}
    new = {word for word in after if not _is_among(word, before)}
    if lost or len(new) > len(before) / 2:
        return False
    return fuzz.token_set_ratio(" ".join(sorted(before)), " ".join(sorted(after))) >= SIMILAR


def content_words(text: str) -> set[str]:
    return {word for word in re.findall(r"[^\W_]+", text.lower()) if word not in STOP_WORDS}


def _is_among(word: str, words: set[str]) -> bool:
    """Allowing for a typing error in a long word."""
    if word in words or len(word) < SHORTEST_FUZZY_WORD or any(char.isdigit() for char in word):
        return word in words
    return any(fuzz.ratio(word, other) >= SAME_WORD for other in words)
