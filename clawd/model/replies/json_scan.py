"""Where a JSON value ends, found while it is written."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal

CLOSES = {"{": "}", "[": "]"}
IN_STRING = re.compile(r'[^"\\\x00-\x1f]+')
BETWEEN = re.compile(r"[\s\w:,.+-]+")
BEFORE = re.compile(r"\s+")

State = Literal["open", "done", "broken"]


class JsonScanner:
    """Follows one object or array over growing text: its strings and brackets, not the grammar in between."""

    def __init__(self, stack: str = "") -> None:
        self.state: State = "open"
        self._stack = list(stack)  # the closing brackets that are still to come
        self._in_string = False
        self._escaped = False

    def scan(self, text: str) -> tuple[str, int]:
        """Read on in `text`; returns (what was read, how much of `text` that is).

        Line breaks and other control characters within strings, which JSON forbids and small models write, come back
        escaped. Reading ends with the value, or where it can't be one any more (`state` is then "broken").
        """
        read: list[str] = []
        at = 0
        while at < len(text) and self.state == "open":
            run = self._plain().match(text, at) if not self._escaped else None
            if run is not None:
                read.append(run.group())
                at = run.end()
            else:
                taken = self._inside(text[at]) if self._in_string else self._outside(text[at])
                read.append(taken)
                at += 1 if taken else 0
        return "".join(read), at

    def _plain(self) -> re.Pattern[str]:
        """Characters that change nothing here."""
        if self._in_string:
            return IN_STRING
        return BETWEEN if self._stack else BEFORE

    def _inside(self, char: str) -> str:
        """One character of a string."""
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False
        elif char < " ":
            return json.dumps(char)[1:-1]
        return char

    def _outside(self, char: str) -> str:
        """One character between strings; "": it doesn't belong there."""
        if char in CLOSES:
            self._stack.append(CLOSES[char])
        elif char == '"' and self._stack:
            self._in_string = True
        elif self._stack and char == self._stack[-1]:
            self._stack.pop()
            self.state = "open" if self._stack else "done"
        else:
            self.state = "broken"
            return ""
        return char


def loads(text: str) -> Any:
    """The JSON value of `text`; None if it is none, nests too deeply, or has numbers that JSON can't write."""
    try:
        return json.loads(text, strict=False, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no JSON number")
    return value


def dumps(value: Any) -> str:
    """JSON text that UTF-8 can carry: half a surrogate pair stays escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_text(text) else json.dumps(value)


def is_text(text: str) -> bool:
    """Whether UTF-8 can carry it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
