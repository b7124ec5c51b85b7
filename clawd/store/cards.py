"""Preference cards: per adapter a short list of lasting rules, divergence from hints or written by a person.

A rule stands once, however often it is said. A person's own lines stay until a person takes them off, and what they
take off no hint brings back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rapidfuzz import fuzz

from clawd.errors import UnknownName
from clawd.store.codec import clean_text, new_id, now
from clawd.store.connection import Connection, Row
from clawd.store.records import CardLine

FILLERS = frozenset({"a", "an", "the", "please"})
SAME_WORD = 87.0  # of 100: "list" and "lists", but not "can" and "cant"
LONGEST_LINE = 400  # characters


def same_rule(left: str, right: str) -> bool:
    """Whether two lines say the same, but for case, punctuation, fillers and the endings of words.

    Word by word and in order: "do not use lists" is as good as equal to "do use lists" by any measure of the whole, and
    so is "lists, not tables" to "tables, not lists".
    """
    words = _words(left), _words(right)
    return len(words[0]) == len(words[1]) and all(_same_word(a, b) for a, b in zip(*words, strict=True))


def _words(text: str) -> list[str]:
    plain = re.sub("['’]", "", text.casefold())
    return [word for word in re.findall(r"\w+", plain) if word not in FILLERS]


def _same_word(left: str, right: str) -> bool:
    """Of one first letter ("un-" turns a word round), and ASCII: elsewhere a "word" may be a whole sentence."""
    if left == right:
        return True
    close = left.isascii() and right.isascii() and left.isalpha() and right.isalpha() and left[0] == right[0]
    return close and fuzz.ratio(left, right) >= SAME_WORD


class Cards:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- writing

    def write(self, adapter_id: str, text: str) -> CardLine:
        """A person's own line; one that says the same becomes theirs.

        Raises UnknownName for an empty one.
        """
        line = " ".join(clean_text(text).split())[:LONGEST_LINE]
        if not line:
            raise UnknownName("A line of a card needs words.")
        with self._connection.transaction():
            same = self._same(adapter_id, line)
            if same is not None:
                self._connection.change(
                    "UPDATE card_lines SET text = ?, source = 'person', confirmed_at = ?, "
                    "removed_at = NULL WHERE id = ?",
                    (line, now(), same["id"]),
                )
                return self._line(same["id"])
            return self._line(self._insert(adapter_id, line, "person", now()))

    def learn(self, adapter_id: str, turn_ids: Sequence[str], most: int) -> None:
        """Take up the hints of these turns, dated as they were given; doing so again changes nothing.

        Of more than `most` lines, those from hints that were said longest ago make room.
        """
        with self._connection.transaction():
            for turn_id in turn_ids:
                for hint in self._connection.rows("SELECT * FROM hints WHERE turn_id = ? ORDER BY rowid", (turn_id,)):
                    line = " ".join(hint["text"].split())
                    if line and len(line) <= LONGEST_LINE:
                        self._learn(adapter_id, line, hint["created_at"])
            self._make_room(adapter_id, most)

    def _learn(self, adapter_id: str, line: str, said_at: float) -> None:
        same = self._same(adapter_id, line)
        if same is None:
            self._insert(adapter_id, line, "hint", said_at)
        else:
            self._connection.change(
                "UPDATE card_lines SET confirmed_at = max(confirmed_at, ?) WHERE id = ? AND removed_at IS NULL",
                (said_at, same["id"]),
            )

    def _make_room(self, adapter_id: str, most: int) -> None:
        excess = len(self.lines(adapter_id)) - most
        if excess > 0:
            self._connection.change(
                "DELETE FROM card_lines WHERE id IN (SELECT id FROM card_lines WHERE adapter_id = ? "
                "AND source = 'hint' AND removed_at IS NULL ORDER BY confirmed_at, rowid LIMIT ?)",
                (adapter_id, excess),
            )

    def remove(self, adapter_id: str, number: int) -> CardLine:
        """Take the line of that number off, from 1 as `lines` has them. Raises UnknownName."""
        with self._connection.transaction():
            lines = self.lines(adapter_id)
            if not 1 <= number <= len(lines):
                raise UnknownName(f"The card has {len(lines)} lines; there is no line {number}.")
            line = lines[number - 1]
            self._connection.change("UPDATE card_lines SET removed_at = ? WHERE id = ?", (now(), line.id))
        return line

    def replace(self, adapter_id: str, texts: Sequence[str]) -> None:
        """Make the card these lines: what stands in it unchanged is kept as it is, the rest is taken off or written."""
        with self._connection.transaction():
            wanted = [" ".join(clean_text(text).split()) for text in texts]
            for line in self.lines(adapter_id):
                if line.text not in wanted:
                    self._connection.change("UPDATE card_lines SET removed_at = ? WHERE id = ?", (now(), line.id))
            kept = {line.text for line in self.lines(adapter_id)}
            for text in wanted:
                if text and text not in kept:
                    self.write(adapter_id, text)

    def _insert(self, adapter_id: str, line: str, source: str, at: float) -> str:
        line_id = new_id()
        self._connection.insert(
            "card_lines",
            {
                "id": line_id,
                "adapter_id": adapter_id,
                "text": line,
                "source": source,
                "created_at": at,
                "confirmed_at": at,
            },
        )
        return line_id

    # -- reading

    def lines(self, adapter_id: str) -> list[CardLine]:
        """The card, oldest line first."""
        rows = self._connection.rows(
            "SELECT * FROM card_lines WHERE adapter_id = ? AND removed_at IS NULL ORDER BY rowid", (adapter_id,)
        )
        return [_card_line(row) for row in rows]

    def _same(self, adapter_id: str, text: str) -> Row | None:
        rows = self._connection.rows("SELECT * FROM card_lines WHERE adapter_id = ? ORDER BY rowid", (adapter_id,))
        return next((row for row in rows if same_rule(row["text"], text)), None)

    def _line(self, line_id: str) -> CardLine:
        row = self._connection.row("SELECT * FROM card_lines WHERE id = ?", (line_id,))
        assert row is not None
        return _card_line(row)


def _card_line(row: Row) -> CardLine:
    return CardLine(row["id"], row["text"], row["source"], row["created_at"], row["confirmed_at"])
