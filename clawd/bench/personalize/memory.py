"""The memory baseline: what a user has corrected before stands in the system prompt of each new session.

Nothing is trained; the price is context in every request. What counts as a correction, and which part of it, is what
the rules judge reads out of the user's text: the same signal that learning gets.
"""

from __future__ import annotations

from clawd.learner.judge.rules import read_reply
from clawd.store.cards import same_rule

MOST_NOTES = 12
HEADER = "What this user has said about earlier replies. Keep to it:"


class Memory:
    """One user's corrections, each rule once, the newest `MOST_NOTES`."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def hear(self, asked: str, reply: str, reaction: str) -> None:
        """Take up what the reaction to a reply corrects, if it does."""
        hint = read_reply(asked, reply, reaction).hint
        if hint is None:
            return
        self.notes = [note for note in self.notes if not same_rule(note, hint)]
        self.notes = [*self.notes, hint][-MOST_NOTES:]

    def prompt(self) -> list[dict[str, str]]:
        """The system message; none while nothing has been corrected."""
        if not self.notes:
            return []
        return [{"role": "system", "content": "\n".join([HEADER, *(f"- {note}" for note in self.notes)])}]
