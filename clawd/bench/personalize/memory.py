"""What a memory is, and the plain one: the user's corrections stand in the system prompt of each new session.

Nothing is trained; the price is context in every request. What counts as a correction, and which part of it, is what
the rules judge reads out of the user's text: the same signal that learning gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from clawd.learner.judge.rules import read_reply
from clawd.store.cards import same_rule

Messages = list[dict[str, str]]

MOST_NOTES = 12
HEADER = "What this user has said about earlier replies. Keep to it:"


class Memory(Protocol):
    """What one user has said."""

    def prompt(self, asked: str) -> Messages:
        """The system message of a session that begins with `asked`; none where nothing is remembered."""
        ...

    def hear(self, conversation: Messages) -> None:
        """Take up a session that has ended: the user's messages and the replies in turns, the user's last word too."""
        ...

    def close(self) -> None: ...


class Notes:
    """One user's corrections, each rule once, the newest `MOST_NOTES`."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def prompt(self, asked: str) -> Messages:
        del asked  # all notes stand in every session
        return system_message(HEADER, self.notes)

    def hear(self, conversation: Messages) -> None:
        for hint in corrections(conversation):
            kept = [note for note in self.notes if not same_rule(note, hint)]
            self.notes = [*kept, hint][-MOST_NOTES:]

    def close(self) -> None:
        pass


def corrections(conversation: Messages) -> list[str]:
    """What the rules judge reads out of the reactions, oldest first."""
    said = [message["content"] for message in conversation]
    read = [read_reply(*said[at : at + 3]).hint for at in range(0, len(said) - 2, 2)]
    return [hint for hint in read if hint is not None]


def system_message(header: str, notes: Sequence[str]) -> Messages:
    """None without notes."""
    if not notes:
        return []
    return [{"role": "system", "content": "\n".join([header, *(f"- {note}" for note in notes)])}]
