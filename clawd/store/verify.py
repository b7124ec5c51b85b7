"""What must always hold between the tables, checked by reading all of them."""

from __future__ import annotations

from collections.abc import Iterator

from clawd.store.connection import Connection
from clawd.store.states import STATES

CHECKS: dict[str, str] = {
    "turn {id}: {what} log-probabilities do not match its response ids": """
        SELECT id, length(logprobs) / 4 AS what FROM turns WHERE length(logprobs) IS NOT length(response_ids)""",
    "turn {id}: its prompt has not the {what} tokens that it says": """
        SELECT id, prompt_length AS what FROM turns WHERE prompt_common + length(prompt_rest) / 4 <> prompt_length""",
    "turn {id}: {what} and without a response": """
        SELECT id, state AS what FROM turns
        WHERE state IN ('waiting', 'judging', 'sampled') AND (response_ids IS NULL OR finished_at IS NULL)""",
    "turn {id}: a side turn in state {what}": """
        SELECT id, state AS what FROM turns WHERE kind = 'side' AND state NOT IN ('recorded', 'discarded')""",
    "turn {id}: sampled but without a sample{what}": """
        SELECT id, '' AS what FROM turns WHERE state = 'sampled' AND id NOT IN (SELECT turn_id FROM samples)""",
    "sample {id}: its turn is {what}, not sampled": """
        SELECT samples.id, turns.state AS what FROM samples JOIN turns ON turns.id = turn_id
        WHERE turns.state <> 'sampled'""",
    "sample {id}: of adapter {what}, not of its turn's": """
        SELECT samples.id, samples.adapter_id AS what FROM samples JOIN turns ON turns.id = turn_id
        WHERE samples.adapter_id IS NOT turns.adapter_id""",
    "sample {id}: claimed by an update that is {what}": """
        SELECT samples.id, coalesce(updates.state, 'missing') AS what FROM samples
        LEFT JOIN updates ON updates.id = update_id
        WHERE samples.state = 'claimed' AND coalesce(updates.state, '') NOT IN ('running', 'staged')""",
    "sample {id}: used, but its version is {what}": """
        SELECT samples.id, coalesce(adapter_versions.state, 'missing') AS what FROM samples
        LEFT JOIN adapter_versions ON adapter_versions.id = version_id
        WHERE samples.state = 'used' AND coalesce(adapter_versions.state, '') NOT IN ('active', 'retired', 'pruned')""",
    "sample {id}: waiting, yet tied to update {what}": """
        SELECT id, update_id AS what FROM samples WHERE state = 'waiting' AND update_id IS NOT NULL""",
    "version {id}: {what}, but its update is not in the same state": """
        SELECT adapter_versions.id, adapter_versions.state AS what FROM adapter_versions
        JOIN updates ON updates.id = update_id
        WHERE NOT ((adapter_versions.state = 'staged' AND updates.state = 'staged')
            OR (adapter_versions.state IN ('active', 'retired', 'pruned') AND updates.state = 'active')
            OR (adapter_versions.state = 'rejected' AND updates.state = 'refused'))""",
    "turn {id}: of adapter {what}, answered by another adapter's version": """
        SELECT turns.id, turns.adapter_id AS what FROM turns JOIN adapter_versions ON adapter_versions.id = version_id
        WHERE adapter_versions.adapter_id IS NOT turns.adapter_id""",
    "turn {id}: being answered by version {what}, whose files are gone": """
        SELECT turns.id, version_id AS what FROM turns JOIN adapter_versions ON adapter_versions.id = version_id
        WHERE turns.state = 'recorded' AND adapter_versions.state = 'pruned'""",
    "user {id}: may not use {what}, which is their own adapter": """
        SELECT users.id, users.adapter_id AS what FROM users LEFT JOIN adapter_users
        ON adapter_users.user_id = users.id AND adapter_users.adapter_id = users.adapter_id
        WHERE adapter_users.user_id IS NULL""",
    "user {id}: their adapter {what} has been removed": """
        SELECT users.id, adapters.id AS what FROM users JOIN adapters ON adapters.id = users.adapter_id
        WHERE adapters.removed_at IS NOT NULL""",
    "turn {id}: in a session of another user than {what}": """
        SELECT turns.id, turns.user_id AS what FROM turns JOIN sessions ON sessions.id = session_id
        WHERE turns.user_id <> sessions.user_id""",
    "turn {id}: its previous turn is another user's than {what}": """
        SELECT turns.id, turns.user_id AS what FROM turns JOIN turns AS previous ON previous.id = turns.previous_id
        WHERE turns.user_id <> previous.user_id""",
}


def verify(connection: Connection) -> list[str]:
    """What is wrong, a sentence each; empty: all is well. Reads everything once."""
    return [*_file(connection), *_states(connection), *_relations(connection)]


def _file(connection: Connection) -> Iterator[str]:
    for row in connection.rows("PRAGMA integrity_check"):
        if row["integrity_check"] != "ok":
            yield f"database: {row['integrity_check']}"
    for row in connection.rows("PRAGMA foreign_key_check"):
        yield f"{row['table']} row {row['rowid']}: refers to a missing row of {row['parent']}"


def _states(connection: Connection) -> Iterator[str]:
    for table, machine in STATES.items():
        known = ", ".join(f"'{state}'" for state in sorted(machine.states))
        for row in connection.rows(f"SELECT id, state FROM {table} WHERE state NOT IN ({known})"):
            yield f"{table} {row['id']}: unknown state {row['state']}"
        if machine.needs_reason:
            needing = ", ".join(f"'{state}'" for state in sorted(machine.needs_reason))
            for row in connection.rows(
                f"SELECT id, state FROM {table} WHERE state IN ({needing}) AND coalesce(reason, '') = ''"
            ):
                yield f"{table} {row['id']}: {row['state']} without a reason"


def _relations(connection: Connection) -> Iterator[str]:
    for sentence, sql in CHECKS.items():
        for row in connection.rows(sql):
            yield sentence.format(**row)
