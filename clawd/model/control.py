"""The texts of a vocabulary's control tokens, and where they stand in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MOST_IN_A_PIECE = 500


class ControlTexts:
    """`strip_left`, `strip_right`: those that swallow the white space before or after them."""

    def __init__(self, texts: Iterable[str], strip_left: Iterable[str] = (), strip_right: Iterable[str] = ()) -> None:
        self.texts = frozenset(text for text in texts if text)
        self.strip_left = frozenset(strip_left)
        self.strip_right = frozenset(strip_right)
        self._lengths = sorted({len(text) for text in self.texts}, reverse=True)
        self._pattern = re.compile(_pattern(self.texts)) if self.texts else None
        # Of a letter or a word alone, such as a call's type, nothing is exchanged: templates compare those.
        begins = (text[:end] for text in self.texts for end in range(1, len(text)))
        ends = (text[start:] for text in self.texts for start in range(1, len(text)))
        self._beginnings = frozenset(part for part in begins if not part.isalnum())
        self._endings = frozenset(part for part in ends if not part.isalnum())

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """(start, end) of each, the longest at a place, from left to right."""
        return (found.span() for found in self._pattern.finditer(text)) if self._pattern else iter(())

    def pieces(self, text: str) -> Iterator[str]:
        """The text in pieces that have the same tokens as the whole, each with few enough control tokens.

        llama.cpp takes time in the square of their number: minutes for a conversation of 50,000 messages, which nobody
        can break off, and be it only to say that it is too long.
        """
        at = count = 0
        for start, end in self.find(text):
            count += 1
            if count >= MOST_IN_A_PIECE and text[start:end] not in self.strip_right:
                yield text[at:end]
                at, count = end, 0
        yield text[at:]

    def begun_at_end(self, text: str) -> int | None:
        """Where, white space aside, the end of a text begins one."""
        text = text.rstrip()
        longest = min(self._lengths[0] - 1, len(text)) if self._lengths else 0
        return next((len(text) - n for n in range(longest, 0, -1) if text[len(text) - n :] in self._beginnings), None)

    def ended_at_start(self, text: str) -> int | None:
        """Where, white space aside, the last character of one is that a text begins within."""
        blank = len(text) - len(text.lstrip())
        longest = min(self._lengths[0] - 1, len(text) - blank) if self._lengths else 0
        return next((blank + n - 1 for n in range(longest, 0, -1) if text[blank : blank + n] in self._endings), None)


def _pattern(texts: Iterable[str]) -> str:
    """A regular expression for the longest of them at a place.

    Common beginnings are looked at once: there may be thousands of texts, and a prompt may hold a `<` everywhere.
    """
    rests: dict[str, list[str]] = {}
    may_end = False
    for text in texts:
        if text:
            rests.setdefault(text[0], []).append(text[1:])
        may_end |= not text
    branches = [re.escape(first) + _pattern(rest) for first, rest in sorted(rests.items())]
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){'?' if may_end else ''}"
