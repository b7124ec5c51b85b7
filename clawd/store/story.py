"""Reading back what an update learnt from, or would learn from next. Writes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from clawd.store.connection import Connection
from clawd.store.records import Reward, Vote
from clawd.store.signals import Signals
from clawd.store.turns import Turns


@dataclass(frozen=True)
class Lesson:
    """One sample, with the turn that it is and what was said about it."""

    sample_id: str
    turn_id: str
    user: str
    created_at: float  # of the turn
    state: str  # of the sample
    reason: str | None  # why it was left out, if it was
    reward: Reward | None  # none: no score
    asked: str  # the text of the last user message
    answered: str  # as the model wrote it
    followed: str  # the text of the next state; "": nothing followed, or only feedback
    hints: tuple[str, ...]
    votes: tuple[Vote, ...]
    prompt_tokens: int
    response_tokens: int


@dataclass(frozen=True)
class UpdateFigures:
    """What an update measured."""

    number: int
    state: str
    reason: str | None
    origin: str
    finished_at: float | None  # none: it runs
    samples: int
    mean_reward: float | None  # none: no sample of it had a score
    metrics: dict[str, float]


class Story:
    def __init__(self, connection: Connection, turns: Turns, signals: Signals) -> None:
        self._connection = connection
        self._turns = turns
        self._signals = signals

    def next_batch(self, adapter_id: str, base_fingerprint: str, count: int) -> list[Lesson]:
        """What the adapter's next update would claim, oldest first."""
        rows = self._connection.rows(
            "SELECT samples.* FROM samples JOIN turns ON turns.id = samples.turn_id WHERE samples.adapter_id = ? "
            "AND samples.state = 'waiting' AND turns.base_fingerprint = ? ORDER BY samples.rowid LIMIT ?",
            (adapter_id, base_fingerprint, count),
        )
        return [self._lesson(row) for row in rows]

    def of_update(self, update_id: str) -> list[Lesson]:
        """What an update learnt from, and what it left out, oldest first."""
        rows = self._connection.rows("SELECT * FROM samples WHERE update_id = ? ORDER BY rowid", (update_id,))
        return [self._lesson(row) for row in rows]

    def _lesson(self, sample: dict[str, Any]) -> Lesson:
        turn = self._turns.get(sample["turn_id"])
        user = self._connection.row("SELECT name FROM users WHERE id = ?", (turn.user_id,))
        return Lesson(
            sample_id=sample["id"],
            turn_id=turn.id,
            user=user["name"] if user else turn.user_id,
            created_at=turn.created_at,
            state=sample["state"],
            reason=sample["reason"],
            reward=sample["reward"],
            asked=next((_text(m.get("content")) for m in reversed(turn.messages) if m.get("role") == "user"), ""),
            answered=turn.response_text,
            followed="\n".join(_text(message.get("content")) for message in turn.next_state or []),
            hints=tuple(hint.text for hint in self._signals.hints(turn.id)),
            votes=tuple(self._signals.votes(turn.id)),
            prompt_tokens=len(turn.prompt_ids),
            response_tokens=len(turn.response_ids),
        )

    def figures(self, adapter_id: str) -> list[UpdateFigures]:
        """The adapter's ended updates, oldest first."""
        rows = self._connection.rows(
            "SELECT updates.*, (SELECT count(*) FROM samples WHERE update_id = updates.id) AS samples, "
            "(SELECT avg(reward) FROM samples WHERE update_id = updates.id) AS mean_reward "
            "FROM updates WHERE adapter_id = ? AND state <> 'running' ORDER BY rowid",
            (adapter_id,),
        )
        return [
            UpdateFigures(
                number=row["number"],
                state=row["state"],
                reason=row["reason"],
                origin=row["origin"],
                finished_at=row["finished_at"],
                samples=row["samples"],
                mean_reward=row["mean_reward"],
                metrics=json.loads(row["metrics"]) if row["metrics"] else {},
            )
            for row in rows
        ]


def _text(content: Any) -> str:
    """What a message says, of whichever form its content is."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
