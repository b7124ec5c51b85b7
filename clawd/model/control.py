"""The texts of a vocabulary's control tokens, and where they stand in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


class ControlTexts:
    """`strip_left`, `strip_right`: those that swallow the white space before or after them."""

    def __init__(self, texts: Iterable[str], strip_left: Iterable[str] = (), strip_right: Iterable[str] = ()) -> None:
        self.texts = frozenset(text for text in texts if text)
        self.strip_left = frozenset(strip_left)
        self.strip_right = frozenset(strip_right)
        self._lengths = sorted({len(text) for text in self.texts}, reverse=True)
        firsts = "".join(re.escape(first) for first in sorted({text[0] for text in self.texts}))
        self._first = re.compile(f"[{firsts}]") if firsts else None
        # Of a letter or a word alone, such as a call's type, nothing is exchanged: templates compare those.
        begins = (text[:end] for text in self.texts for end in range(1, len(text)))
        ends = (text[start:] for text in self.texts for start in range(1, len(text)))
        self._beginnings = frozenset(part for part in begins if not part.isalnum())
        self._endings = frozenset(part for part in ends if not part.isalnum())

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """(start, end) of each, the longest at a place, from left to right."""
        at = 0
        while self._first and (found := self._first.search(text, at)):
            start = found.start()
            end = next((start + n for n in self._lengths if text[start : start + n] in self.texts), None)
            if end is not None:
                yield start, end
            at = start + 1 if end is None else end

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
