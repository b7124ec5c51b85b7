"""Votes, hints and samples: from a judged turn to what an update may learn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from clawd.errors import TransitionRefused, UnknownName
from clawd.store.codec import clean_text, new_id, now
from clawd.store.connection import Connection, Row
from clawd.store.records import Hint, Reward, StoredSample, Vote
from clawd.store.states import can_be_judged

FEEDBACK = "feedback"
SIGNAL_TAKEN = "feedback took its signal"

FeedbackEffect = Literal["judging", "sample changed", "none"]


class Signals:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_vote(self, turn_id: str, vote: Vote) -> str:
        """Store a vote, with its hint if it has one; the vote's id."""
        vote_id = new_id()
        with self._connection.transaction():
            self._connection.insert(
                "votes",
                {
                    "id": vote_id,
                    "turn_id": turn_id,
                    "judge": vote.judge,
                    "score": vote.score,
                    "reason": clean_text(vote.reason),
                    "answer": clean_text(vote.answer) if vote.answer is not None else None,
                    "created_at": now(),
                },
            )
            if vote.hint:
                self._connection.insert(
                    "hints",
                    {
                        "id": new_id(),
                        "turn_id": turn_id,
                        "vote_id": vote_id,
                        "text": clean_text(vote.hint),
                        "created_at": now(),
                    },
                )
        return vote_id

    def votes(self, turn_id: str) -> list[Vote]:
        """A turn's votes, oldest first."""
        rows = self._connection.rows(
            "SELECT votes.*, hints.text AS hint FROM votes LEFT JOIN hints ON hints.vote_id = votes.id "
            "WHERE votes.turn_id = ? ORDER BY votes.rowid",
            (turn_id,),
        )
        return [Vote(row["judge"], row["score"], row["reason"], row["hint"], row["answer"]) for row in rows]

    def hints(self, turn_id: str) -> list[Hint]:
        """A turn's hint candidates, oldest first, equal texts once."""
        rows = self._connection.rows(
            "SELECT min(id) AS id, text FROM hints WHERE turn_id = ? GROUP BY text ORDER BY min(rowid)", (turn_id,)
        )
        return [Hint(row["id"], row["text"]) for row in rows]

    def settle(self, turn_id: str, votes: Sequence[Vote], reward: Reward | None) -> str:
        """A turn is judged: store its votes and make the sample, in one transaction; the sample's id.

        Raises TransitionRefused if the turn is not being judged, or was answered by the bare base on request.
        """
        connection = self._connection
        sample_id = new_id()
        with connection.transaction():
            for vote in votes:
                self.add_vote(turn_id, vote)
            row = connection.row("SELECT adapter_id FROM turns WHERE id = ?", (turn_id,))
            if row is None or row["adapter_id"] is None:
                raise TransitionRefused(f"Turn {turn_id} belongs to no adapter, so nothing can learn from it.")
            connection.step("turns", turn_id, ("judging",), "sampled")
            connection.insert(
                "samples",
                {
                    "id": sample_id,
                    "turn_id": turn_id,
                    "adapter_id": row["adapter_id"],
                    "reward": reward,
                    "state": "waiting",
                    "created_at": now(),
                },
            )
        return sample_id

    def dismiss(self, turn_id: str, votes: Sequence[Vote], reason: str) -> None:
        """A turn is judged and teaches nothing: store its votes and why, in one transaction."""
        with self._connection.transaction():
            for vote in votes:
                self.add_vote(turn_id, vote)
            self._connection.step("turns", turn_id, ("judging",), "discarded", reason=reason)

    def feedback(self, turn_id: str, vote: Vote) -> FeedbackEffect:
        """Store a person's own verdict on a turn and let it count as far as it still can.

        A turn that is not judged yet goes to the judge, next state or not. A sample that still waits is changed, or
        quarantined if neither reward nor hint is left. Raises UnknownName.
        """
        connection = self._connection
        with connection.transaction():
            turn = connection.row("SELECT * FROM turns WHERE id = ?", (turn_id,))
            if turn is None:
                raise UnknownName(f"There is no turn {turn_id}.")
            self.add_vote(turn_id, vote)
            if turn["kind"] == "main" and turn["adapter_id"] and can_be_judged(turn["state"], turn["reason"]):
                return self._judge_again(turn)
            return self._change_sample(turn_id, vote)

    def _judge_again(self, turn: Row) -> FeedbackEffect:
        """One request gives one sample at most: where another answer to it is judged, this one is too late."""
        siblings = (turn["session_id"], turn["request_hash"], turn["id"])
        if self._connection.row(
            "SELECT 1 FROM turns WHERE session_id = ? AND request_hash = ? AND id <> ? AND kind = 'main' "
            "AND state IN ('judging', 'sampled')",
            siblings,
        ):
            return "none"
        self._connection.change("UPDATE turns SET state = 'judging', reason = NULL WHERE id = ?", (turn["id"],))
        self._connection.change(
            "UPDATE turns SET state = 'discarded', reason = 'retried' "
            "WHERE session_id = ? AND request_hash = ? AND id <> ? AND state = 'waiting'",
            siblings,
        )
        return "judging"

    def _change_sample(self, turn_id: str, vote: Vote) -> FeedbackEffect:
        """The newest word counts as long as no update has the sample; also after one that took its signal."""
        connection = self._connection
        sample = connection.row(
            "SELECT id, state FROM samples WHERE turn_id = ? "
            "AND (state = 'waiting' OR (state = 'quarantined' AND reason = ?))",
            (turn_id, SIGNAL_TAKEN),
        )
        if sample is None:
            return "none"
        has_signal = bool(vote.score) or bool(self.hints(turn_id))
        state, reason = ("waiting", None) if has_signal else ("quarantined", SIGNAL_TAKEN)
        connection.change(
            "UPDATE samples SET reward = ?, state = ?, reason = ? WHERE id = ?",
            (vote.score, state, reason, sample["id"]),
        )
        return "sample changed"

    def quarantine(self, sample_id: str, reason: str) -> None:
        """Keep a sample out of training for good."""
        self._connection.step("samples", sample_id, ("waiting", "claimed"), "quarantined", reason=reason)

    def sample_of(self, turn_id: str) -> StoredSample | None:
        row = self._connection.row("SELECT * FROM samples WHERE turn_id = ?", (turn_id,))
        return _sample(row) if row else None

    def get(self, sample_id: str) -> StoredSample:
        """Raises UnknownName."""
        row = self._connection.row("SELECT * FROM samples WHERE id = ?", (sample_id,))
        if row is None:
            raise UnknownName(f"There is no sample {sample_id}.")
        return _sample(row)

    def of_update(self, update_id: str) -> list[StoredSample]:
        """The samples that an update claimed, oldest first."""
        rows = self._connection.rows("SELECT * FROM samples WHERE update_id = ? ORDER BY rowid", (update_id,))
        return [_sample(row) for row in rows]

    def waiting(self, adapter_id: str, base_fingerprint: str) -> int:
        """Samples that wait for the adapter's next update on this base. Those of another base wait for its return."""
        row = self._connection.row(
            "SELECT count(*) AS n FROM samples JOIN turns ON turns.id = samples.turn_id WHERE samples.adapter_id = ? "
            "AND samples.state = 'waiting' AND turns.base_fingerprint = ?",
            (adapter_id, base_fingerprint),
        )
        return int(row["n"]) if row else 0

    def largest_waiting(self, adapter_id: str, base_fingerprint: str, count: int, most: int) -> tuple[int, int]:
        """Of the `count` oldest that wait, those of up to `most` tokens: the longest one's tokens, most hints."""
        row = self._connection.row(
            "SELECT max(tokens) AS tokens, max(hints) AS hints FROM (SELECT "
            "turns.prompt_length + length(turns.response_ids) / 4 AS tokens, "
            "(SELECT count(*) FROM hints WHERE hints.turn_id = turns.id) AS hints "
            "FROM samples JOIN turns ON turns.id = samples.turn_id WHERE samples.adapter_id = ? "
            "AND samples.state = 'waiting' AND turns.base_fingerprint = ? ORDER BY samples.rowid LIMIT ?) "
            "WHERE tokens <= ?",
            (adapter_id, base_fingerprint, count, most),
        )
        return (row["tokens"] or 0, row["hints"] or 0) if row else (0, 0)

    def counts(self, adapter_id: str | None = None) -> dict[str, int]:
        """Samples by state; of one adapter if named."""
        rows = self._connection.rows(
            "SELECT state, count(*) AS n FROM samples WHERE ?1 IS NULL OR adapter_id = ?1 GROUP BY state", (adapter_id,)
        )
        return {row["state"]: row["n"] for row in rows}


def _sample(row: Row) -> StoredSample:
    return StoredSample(row["id"], row["turn_id"], row["adapter_id"], row["reward"], row["state"], row["failures"])
