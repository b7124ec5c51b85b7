"""Turns: what was asked, what was answered, token by token, and what followed.

A turn's prompt and messages are stored as (an earlier turn of the session, length of the common prefix, rest), so that
a session of n turns takes space in proportion to what was said, not to n². They are put together again on reading.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from clawd.errors import UnknownName
from clawd.store.codec import (
    common_prefix,
    content_hash,
    new_id,
    now,
    pack_ids,
    pack_json,
    pack_json_as_sent,
    pack_logprobs,
    require_equal_lengths,
    unpack_ids,
    unpack_logprobs,
)
from clawd.store.connection import Connection, Row
from clawd.store.records import Message, NewTurn, Response, Turn, TurnRef
from clawd.store.states import ALTERNATIVE, can_be_judged

SHARED_TEXT_LENGTH = 256
"""System prompts at least this long are stored once, by their hash."""

REFS = "SELECT id, session_id, state, reason, request_hash, conversation_hash, created_at FROM turns "

CHAIN = """
WITH RECURSIVE chain(id, depth) AS (
    SELECT ?, 0
    UNION ALL
    SELECT turns.prefix_turn_id, depth + 1 FROM chain JOIN turns ON turns.id = chain.id
    WHERE turns.prefix_turn_id IS NOT NULL
)
SELECT turns.id, prompt_common, prompt_rest, messages_common, messages_rest, response_ids
FROM chain JOIN turns ON turns.id = chain.id ORDER BY depth DESC
"""


class Turns:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- writing

    def begin(self, new: NewTurn) -> str:
        """Record an accepted request, before its first token; the turn's id."""
        connection = self._connection
        turn_id = new_id()
        with connection.transaction():
            prefix = self._newest_of_session(new.session_id)
            known_ids, known_messages = self._material(prefix) if prefix else ([], [])
            prompt_common = common_prefix(known_ids, new.prompt_ids)
            messages_common = common_prefix(known_messages, new.messages)
            connection.insert(
                "turns",
                {
                    "id": turn_id,
                    "session_id": new.session_id,
                    "user_id": new.user_id,
                    "adapter_id": new.adapter_id,
                    "version_id": new.version_id,
                    "base_fingerprint": new.base_fingerprint,
                    "kind": new.kind,
                    "kind_evidence": new.kind_evidence,
                    "state": "recorded",
                    "previous_id": new.previous_id,
                    "prefix_turn_id": prefix,
                    "prompt_common": prompt_common,
                    "prompt_rest": pack_ids(new.prompt_ids[prompt_common:]),
                    "prompt_length": len(new.prompt_ids),
                    "messages_common": messages_common,
                    "messages_rest": pack_json_as_sent([self._shrink(m) for m in new.messages[messages_common:]]),
                    "tools_hash": self._keep(new.tools) if new.tools else None,
                    "parameters": pack_json_as_sent(new.parameters),
                    "request_hash": new.request_hash,
                    "created_at": now(),
                },
            )
            connection.change("UPDATE sessions SET last_seen_at = ? WHERE id = ?", (now(), new.session_id))
        return turn_id

    def finish(self, turn_id: str, response: Response, *, alternative: bool = False) -> None:
        """Store the whole answer. A main-line turn then waits for its next state; a side turn is done with.

        `alternative`: one of several answers to one request. It doesn't wait: a next state counts for it only if the
        conversation is seen to go on from this very answer.

        Raises StoreError if ids and log-probabilities differ in number.
        """
        self._end(turn_id, response, discard_because=ALTERNATIVE if alternative else None)

    def abort(self, turn_id: str, response: Response, reason: str) -> None:
        """Store as much of an answer as there is; it is never trained on. `reason`: `aborted`, `error`, …"""
        self._end(turn_id, response, discard_because=reason)

    def _end(self, turn_id: str, response: Response, discard_because: str | None) -> None:
        require_equal_lengths(response.ids, response.logprobs)
        connection = self._connection
        columns = {
            "response_ids": pack_ids(response.ids),
            "logprobs": pack_logprobs(response.logprobs),
            "response_text": response.text,
            "finish_reason": response.finish_reason,
            "conversation_hash": response.conversation_hash,
            "cached_tokens": response.cached_tokens,
            "first_token_at": response.first_token_at,
            "finished_at": now(),
        }
        with connection.transaction():
            row = connection.row("SELECT kind, session_id, request_hash FROM turns WHERE id = ?", (turn_id,))
            if row is None:
                raise UnknownName(f"There is no turn {turn_id}.")
            side = row["kind"] == "side" and discard_because in (None, ALTERNATIVE)
            reason = "side turn" if side else discard_because
            if reason is None:
                connection.step("turns", turn_id, ("recorded",), "waiting", **columns)
                # Of answers to one request that were made at the same time, the last one waits.
                self._discard_retried(row["session_id"], row["request_hash"], keep=turn_id)
            else:
                connection.step("turns", turn_id, ("recorded",), "discarded", reason=reason, **columns)
            connection.change("UPDATE sessions SET last_seen_at = ? WHERE id = ?", (now(), row["session_id"]))

    def give_next_state(self, turn_id: str, next_turn_id: str, messages: list[Message]) -> bool:
        """Hand a turn what followed it, so that it can be judged; False where it had that, or can't be trained.

        Other answers to the same request (retries) are then known not to be the one that the conversation goes on from.
        """
        connection = self._connection
        with connection.transaction():
            row = connection.row(
                "SELECT state, reason, kind, next_state, session_id, request_hash FROM turns WHERE id = ?", (turn_id,)
            )
            if row is None or row["kind"] != "main" or row["next_state"] is not None or not messages:
                return False
            if not can_be_judged(row["state"], row["reason"]) or self._sibling_is_judged(turn_id, row):
                return False
            connection.change(
                "UPDATE turns SET state = 'judging', reason = NULL, next_state = ?, next_turn_id = ? WHERE id = ?",
                (pack_json(messages), next_turn_id, turn_id),
            )
            self._discard_retried(row["session_id"], row["request_hash"], keep=turn_id)
        return True

    def _sibling_is_judged(self, turn_id: str, row: Row) -> bool:
        """One request gives one sample at most, however often it was sent."""
        found = self._connection.row(
            "SELECT 1 FROM turns WHERE session_id = ? AND request_hash = ? AND id <> ? AND kind = 'main' "
            "AND state IN ('judging', 'sampled')",
            (row["session_id"], row["request_hash"], turn_id),
        )
        return found is not None

    def supersede(self, session_id: str, request_hash: str, turn_id: str) -> None:
        """The same request came again as `turn_id`: earlier finished answers to it are `retried`."""
        with self._connection.transaction():
            self._discard_retried(session_id, request_hash, keep=turn_id)

    def _discard_retried(self, session_id: str, request_hash: str, keep: str) -> None:
        self._connection.change(
            "UPDATE turns SET state = 'discarded', reason = 'retried' "
            "WHERE session_id = ? AND request_hash = ? AND id <> ? AND state = 'waiting'",
            (session_id, request_hash, keep),
        )

    def discard_interrupted(self) -> int:
        """At start: turns that were running when the last process died are aborted; how many."""
        return self._connection.change(
            "UPDATE turns SET state = 'discarded', reason = 'aborted', finish_reason = 'error', finished_at = ? "
            "WHERE state = 'recorded'",
            (now(),),
        )

    # -- reading

    def get(self, turn_id: str) -> Turn:
        """The whole turn. Raises UnknownName."""
        row = self._connection.row("SELECT * FROM turns WHERE id = ?", (turn_id,))
        if row is None:
            raise UnknownName(f"There is no turn {turn_id}.")
        prompt, messages = self._request(turn_id)
        return Turn(
            id=row["id"],
            session_id=row["session_id"],
            user_id=row["user_id"],
            adapter_id=row["adapter_id"],
            version_id=row["version_id"],
            kind=row["kind"],
            state=row["state"],
            reason=row["reason"],
            previous_id=row["previous_id"],
            prompt_ids=prompt,
            messages=[self._whole(item) for item in messages],
            tools=self._kept(row["tools_hash"]) if row["tools_hash"] else None,
            parameters=json.loads(row["parameters"]),
            response_ids=unpack_ids(row["response_ids"] or b""),
            logprobs=unpack_logprobs(row["logprobs"] or b""),
            response_text=row["response_text"] or "",
            finish_reason=row["finish_reason"],
            next_state=json.loads(row["next_state"]) if row["next_state"] else None,
            created_at=row["created_at"],
            first_token_at=row["first_token_at"],
            finished_at=row["finished_at"],
        )

    def ids_of_session(self, session_id: str) -> list[str]:
        """All turns of a session, main and side, in the order of their requests."""
        rows = self._connection.rows("SELECT id FROM turns WHERE session_id = ? ORDER BY rowid", (session_id,))
        return [row["id"] for row in rows]

    def continued_by(self, user_id: str, hashes: Sequence[str]) -> TurnRef | None:
        """The user's turn whose conversation, response included, has the last possible of `hashes`; the newest such."""
        rows = self._connection.rows(
            REFS + "WHERE user_id = ? AND kind = 'main' AND conversation_hash IN (SELECT value FROM json_each(?)) "
            "ORDER BY rowid DESC",
            (user_id, pack_json(list(hashes))),
        )
        if not rows:
            return None
        order = {digest: place for place, digest in enumerate(hashes)}
        best = max(rows, key=lambda row: order[row["conversation_hash"]])  # max keeps the first, so the newest
        return _ref(best)

    def same_request(self, user_id: str, request_hash: str, since: float) -> TurnRef | None:
        """The user's newest turn with this very request, begun after `since`, that nothing has followed yet."""
        row = self._connection.row(
            REFS + "WHERE user_id = ? AND request_hash = ? "
            "AND created_at > ? AND kind = 'main' AND next_state IS NULL ORDER BY rowid DESC LIMIT 1",
            (user_id, request_hash, since),
        )
        return _ref(row) if row else None

    def newest_waiting(self, session_id: str) -> TurnRef | None:
        """The session's newest main-line turn that waits for a next state.

        None after alternatives: whatever comes is about one of them, and nobody knows which.
        """
        row = self._connection.row(
            REFS + "WHERE session_id = ? AND kind = 'main' AND (state = 'waiting' OR reason = ?) "
            "ORDER BY rowid DESC LIMIT 1",
            (session_id, ALTERNATIVE),
        )
        return _ref(row) if row and row["state"] == "waiting" else None

    def to_judge(self, limit: int) -> list[str]:
        """Turns that wait for the judge, oldest first."""
        rows = self._connection.rows("SELECT id FROM turns WHERE state = 'judging' ORDER BY rowid LIMIT ?", (limit,))
        return [row["id"] for row in rows]

    def counts(self, adapter_id: str | None = None) -> dict[str, int]:
        """Main-line turns by `state` or, of discarded ones, `discarded: reason`; of one adapter if named."""
        rows = self._connection.rows(
            "SELECT CASE state WHEN 'discarded' THEN 'discarded: ' || reason ELSE state END AS what, count(*) AS n "
            "FROM turns WHERE kind = 'main' AND (?1 IS NULL OR adapter_id = ?1) GROUP BY what ORDER BY what",
            (adapter_id,),
        )
        return {row["what"]: row["n"] for row in rows}

    def first_of_conversations(self, adapter_id: str, base_fingerprint: str, most: int) -> list[Turn]:
        """The adapter's newest answered main-line turns that begin a conversation, newest first."""
        rows = self._connection.rows(
            "SELECT id FROM turns WHERE adapter_id = ? AND base_fingerprint = ? AND kind = 'main' "
            "AND previous_id IS NULL AND state <> 'recorded' ORDER BY rowid DESC LIMIT ?",
            (adapter_id, base_fingerprint, most),
        )
        return [self.get(row["id"]) for row in rows]

    def scores(self, adapter_id: str) -> tuple[int, dict[str, int]]:
        """Of an adapter's main-line turns: how many have a valid score, and why how many others have none."""
        rows = self._connection.rows(
            "SELECT CASE "
            "WHEN EXISTS (SELECT 1 FROM votes WHERE turn_id = turns.id AND score IS NOT NULL) THEN NULL "
            "WHEN state = 'recorded' THEN 'being answered' WHEN state = 'waiting' THEN 'no next state yet' "
            "WHEN state = 'judging' THEN 'being judged' WHEN state = 'sampled' THEN 'a hint and no score' "
            "ELSE reason END AS why, count(*) AS n "
            "FROM turns WHERE kind = 'main' AND adapter_id = ? GROUP BY why ORDER BY why",
            (adapter_id,),
        )
        scored = sum(int(row["n"]) for row in rows if row["why"] is None)
        return scored, {row["why"]: row["n"] for row in rows if row["why"] is not None}

    def count_side(self) -> int:
        row = self._connection.row("SELECT count(*) AS n FROM turns WHERE kind = 'side'")
        return int(row["n"]) if row else 0

    # -- prompts and messages, shared

    def _newest_of_session(self, session_id: str) -> str | None:
        row = self._connection.row(
            "SELECT id FROM turns WHERE session_id = ? AND state <> 'recorded' ORDER BY rowid DESC LIMIT 1",
            (session_id,),
        )
        return row["id"] if row else None

    def _material(self, turn_id: str) -> tuple[list[int], list[Message]]:
        """What a later turn may share: prompt + response ids, and the request's messages."""
        prompt, messages = self._request(turn_id)
        row = self._connection.row("SELECT response_ids FROM turns WHERE id = ?", (turn_id,))
        response = unpack_ids(row["response_ids"] or b"") if row else []
        return prompt + response, [self._whole(item) for item in messages]

    def _request(self, turn_id: str) -> tuple[list[int], list[dict[str, Any]]]:
        ids: list[int] = []
        prompt: list[int] = []
        messages: list[dict[str, Any]] = []
        for row in self._connection.rows(CHAIN, (turn_id,)):
            prompt = ids[: row["prompt_common"]] + unpack_ids(row["prompt_rest"])
            ids = prompt + unpack_ids(row["response_ids"] or b"")
            messages = messages[: row["messages_common"]] + json.loads(row["messages_rest"])
        return prompt, messages

    def _shrink(self, message: Message) -> dict[str, Any]:
        content = message.get("content")
        shared = message.get("role") in ("system", "developer") and isinstance(content, str)
        if not shared or len(str(content)) < SHARED_TEXT_LENGTH:
            return {"message": message}
        rest = {key: value for key, value in message.items() if key != "content"}
        return {"message": rest, "content": self._keep(content)}

    def _whole(self, item: dict[str, Any]) -> Message:
        message: Message = item["message"]
        return {**message, "content": self._kept(item["content"])} if "content" in item else message

    def _keep(self, value: Any) -> str:
        text = pack_json_as_sent(value)
        digest = content_hash(text)
        self._connection.change("INSERT OR IGNORE INTO texts(hash, body) VALUES (?, ?)", (digest, text))
        return digest

    def _kept(self, digest: str) -> Any:
        row = self._connection.row("SELECT body FROM texts WHERE hash = ?", (digest,))
        if row is None:
            raise UnknownName(f"The text {digest} is not in the store.")
        return json.loads(row["body"])


def _ref(row: Row) -> TurnRef:
    return TurnRef(**row)
