"""The tables, as an append-only list of migrations. Each runs in one transaction together with the record of it.

States and their allowed transitions stand in `states.py`; a trigger per table refuses any other, so that no code path,
ours or a person's with a SQLite shell, can skip one.
"""

from __future__ import annotations

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from clawd.store.states import STATES, Machine

migrations = Migrations("clawd")

TABLES = """
CREATE TABLE adapters (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL
) STRICT;

CREATE TABLE users (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    key_hash TEXT UNIQUE,                       -- none: `default`, who needs no key
    adapter_id TEXT NOT NULL REFERENCES adapters(id),
    created_at REAL NOT NULL
) STRICT;

CREATE TABLE updates (
    id TEXT PRIMARY KEY,
    adapter_id TEXT NOT NULL REFERENCES adapters(id),
    number INTEGER NOT NULL,                    -- of the version that it makes
    parent_version_id TEXT REFERENCES adapter_versions(id),
    state TEXT NOT NULL,
    reason TEXT,
    settings TEXT NOT NULL,                     -- JSON, as resolved
    metrics TEXT,                               -- JSON, once it ended
    started_at REAL NOT NULL,
    finished_at REAL
) STRICT;
CREATE UNIQUE INDEX one_update_per_adapter ON updates(adapter_id) WHERE state IN ('running', 'staged');

CREATE TABLE adapter_versions (
    id TEXT PRIMARY KEY,
    adapter_id TEXT NOT NULL REFERENCES adapters(id),
    number INTEGER NOT NULL,
    parent_id TEXT REFERENCES adapter_versions(id),
    update_id TEXT NOT NULL REFERENCES updates(id),
    state TEXT NOT NULL,
    reason TEXT,
    folder TEXT NOT NULL,
    gguf_sha256 TEXT NOT NULL,
    base_fingerprint TEXT NOT NULL,
    staged_at REAL NOT NULL,
    activated_at REAL,
    retired_at REAL,
    UNIQUE (adapter_id, number)
) STRICT;
CREATE UNIQUE INDEX one_active_version ON adapter_versions(adapter_id) WHERE state = 'active';

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users(id),
    key TEXT,                                   -- the client's own name for it, if it sent one
    evidence TEXT NOT NULL,                     -- what the identity rests on
    state TEXT NOT NULL,
    reason TEXT,
    created_at REAL NOT NULL,
    last_seen_at REAL NOT NULL,
    closed_at REAL
) STRICT;
CREATE UNIQUE INDEX one_open_session_per_key ON sessions(user_id, key) WHERE state = 'open' AND key IS NOT NULL;
CREATE INDEX open_sessions ON sessions(last_seen_at) WHERE state = 'open';

CREATE TABLE texts (                            -- system prompts and tool lists, once each
    hash TEXT PRIMARY KEY,
    body TEXT NOT NULL                          -- JSON
) STRICT;

CREATE TABLE turns (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    user_id TEXT NOT NULL REFERENCES users(id),
    adapter_id TEXT REFERENCES adapters(id),    -- none: the bare base was asked for by name
    version_id TEXT REFERENCES adapter_versions(id),  -- none: answered by the bare base
    base_fingerprint TEXT NOT NULL,             -- of the model file that answered: its token ids mean nothing elsewhere
    kind TEXT NOT NULL CHECK (kind IN ('main', 'side')),
    kind_evidence TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    previous_id TEXT REFERENCES turns(id),      -- the turn that this one's conversation extends
    prefix_turn_id TEXT REFERENCES turns(id),   -- whose prompt + response the next two count from
    prompt_common INTEGER NOT NULL,             -- tokens shared with it
    messages_common INTEGER NOT NULL,           -- messages of its request shared with it
    prompt_rest BLOB NOT NULL,                  -- uint32
    prompt_length INTEGER NOT NULL,
    messages_rest TEXT NOT NULL,                -- JSON
    tools_hash TEXT REFERENCES texts(hash),
    parameters TEXT NOT NULL,                   -- JSON: sampling, limits, template arguments
    request_hash TEXT NOT NULL,                 -- of the whole request: tells a retry
    conversation_hash TEXT,                     -- of the conversation with the response: tells a continuation
    response_ids BLOB,                          -- uint32, as sampled
    logprobs BLOB,                              -- float32, full vocabulary, temperature 1
    response_text TEXT,
    finish_reason TEXT,
    cached_tokens INTEGER,
    next_state TEXT,                            -- JSON: the messages that followed
    next_turn_id TEXT REFERENCES turns(id),
    created_at REAL NOT NULL,
    first_token_at REAL,
    finished_at REAL
) STRICT;
CREATE INDEX turns_of_session ON turns(session_id, created_at);
CREATE INDEX turns_by_conversation ON turns(user_id, conversation_hash) WHERE conversation_hash IS NOT NULL;
CREATE INDEX turns_by_request ON turns(user_id, request_hash, created_at);
CREATE INDEX turns_in_work ON turns(state) WHERE state IN ('recorded', 'waiting', 'judging');

CREATE TABLE votes (
    id TEXT PRIMARY KEY,
    turn_id TEXT NOT NULL REFERENCES turns(id),
    judge TEXT NOT NULL,                        -- 'feedback', 'rules' or 'llm:<model>'
    score INTEGER CHECK (score IN (-1, 0, 1)),  -- none: no vote, which is not 0
    reason TEXT NOT NULL,                       -- the rule's name, or why there is no vote
    answer TEXT,                                -- a judge model's own words
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX votes_of_turn ON votes(turn_id);

CREATE TABLE hints (
    id TEXT PRIMARY KEY,
    turn_id TEXT NOT NULL REFERENCES turns(id),
    vote_id TEXT NOT NULL REFERENCES votes(id),
    text TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX hints_of_turn ON hints(turn_id);

CREATE TABLE samples (
    id TEXT PRIMARY KEY,
    turn_id TEXT NOT NULL UNIQUE REFERENCES turns(id),
    adapter_id TEXT NOT NULL REFERENCES adapters(id),
    reward INTEGER CHECK (reward IN (-1, 0, 1)),  -- none: no score, which is not 0
    state TEXT NOT NULL,
    reason TEXT,
    update_id TEXT REFERENCES updates(id),
    version_id TEXT REFERENCES adapter_versions(id),
    failures INTEGER NOT NULL DEFAULT 0,        -- failed updates that it was part of
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX samples_waiting ON samples(adapter_id, created_at) WHERE state = 'waiting';
CREATE INDEX samples_of_update ON samples(update_id);

CREATE TABLE events (
    id TEXT PRIMARY KEY,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT,
    detail TEXT NOT NULL                        -- JSON
) STRICT;
CREATE INDEX events_by_kind ON events(kind, at);
"""


@migrations(name="0001_first_light")
def _first_light(db: Database) -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            db.execute(statement)
    _guard(db, "sessions", "turns", "samples", "updates", "adapter_versions")


LIFECYCLE = """
-- halted_at none: it may be updated
ALTER TABLE adapters ADD COLUMN halted_at REAL;
ALTER TABLE adapters ADD COLUMN halted_reason TEXT;
-- update_asked_at none: nobody waits for an update out of turn
ALTER TABLE adapters ADD COLUMN update_asked_at REAL;
-- removed_at none: it is there
ALTER TABLE adapters ADD COLUMN removed_at REAL;
ALTER TABLE updates ADD COLUMN origin TEXT NOT NULL DEFAULT 'training' CHECK (origin IN ('training', 'import', 'copy'));
ALTER TABLE adapter_versions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1));
-- fault none: nothing is held against it
ALTER TABLE adapter_versions ADD COLUMN fault TEXT;
CREATE INDEX turns_in_flight ON turns(version_id) WHERE state = 'recorded' AND version_id IS NOT NULL;

CREATE TABLE adapter_users (                    -- who may use an adapter, and teaches it by that
    adapter_id TEXT NOT NULL REFERENCES adapters(id),
    user_id TEXT NOT NULL REFERENCES users(id),
    since REAL NOT NULL,
    PRIMARY KEY (adapter_id, user_id)
) STRICT, WITHOUT ROWID;
INSERT INTO adapter_users SELECT adapter_id, id, created_at FROM users;

CREATE TABLE switches (                         -- wishes that another version serves; the server grants them
    id TEXT PRIMARY KEY,
    adapter_id TEXT NOT NULL REFERENCES adapters(id),
    version_id TEXT REFERENCES adapter_versions(id),  -- none: the bare base
    asked_by TEXT NOT NULL,
    why TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,                                -- of a refusal
    created_at REAL NOT NULL,
    finished_at REAL
) STRICT;
CREATE INDEX switches_waiting ON switches(created_at) WHERE state = 'waiting';

CREATE TRIGGER turns_version_there BEFORE INSERT ON turns
WHEN (SELECT state FROM adapter_versions WHERE id = NEW.version_id) = 'pruned'
BEGIN SELECT RAISE(ABORT, 'turns: transition refused, the version that should answer has been removed'); END
"""
"""A version is in use while a turn that names it is `recorded`. The trigger and `Lifecycle.prune`, each in a writing
transaction, see to it that no request begins on a version whose files go."""


@migrations(name="0002_lifecycle")
def _lifecycle(db: Database) -> None:
    body, _, trigger = LIFECYCLE.partition("CREATE TRIGGER")
    for statement in body.split(";\n"):
        if statement.strip():
            db.execute(statement)
    db.execute(f"CREATE TRIGGER{trigger}")
    _guard(db, "updates", "adapter_versions", "switches")


def _guard(db: Database, *tables: str) -> None:
    """Let only the states of `states.py` pass, as they are now, in these tables."""
    for table in tables:
        for name in ("first_state", "transition"):
            db.execute(f"DROP TRIGGER IF EXISTS {table}_{name}")
        for statement in _guards(table, STATES[table]):
            db.execute(statement)


def _guards(table: str, machine: Machine) -> list[str]:
    """Triggers that let only the machine's own steps pass."""
    steps = " OR ".join(f"(OLD.state = '{a}' AND NEW.state = '{b}')" for a, b in sorted(machine.steps))
    firsts = ", ".join(f"'{state}'" for state in sorted(machine.first))
    return [
        f"CREATE TRIGGER {table}_first_state BEFORE INSERT ON {table} WHEN NEW.state NOT IN ({firsts}) "
        f"BEGIN SELECT RAISE(ABORT, '{table}: not a first state'); END",
        f"CREATE TRIGGER {table}_transition BEFORE UPDATE OF state ON {table} "
        f"WHEN OLD.state <> NEW.state AND NOT ({steps}) "
        f"BEGIN SELECT RAISE(ABORT, '{table}: transition refused'); END",
    ]


PREFERENCE_CARDS = """
CREATE TABLE card_lines (
    id TEXT PRIMARY KEY,
    adapter_id TEXT NOT NULL REFERENCES adapters(id) ON DELETE CASCADE,
    text TEXT NOT NULL,
    source TEXT NOT NULL CHECK (source IN ('person', 'hint')),
    created_at REAL NOT NULL,
    confirmed_at REAL NOT NULL,                 -- when it was said last
    removed_at REAL                             -- a person took it off: no hint may bring it back
) STRICT;
CREATE INDEX card_lines_of_adapter ON card_lines(adapter_id);
"""


@migrations(name="0002_preference_cards")
def _preference_cards(db: Database) -> None:
    for statement in PREFERENCE_CARDS.split(";\n"):
        if statement.strip():
            db.execute(statement)


GATE = """
-- doubt none: the gate had no objection
ALTER TABLE adapter_versions ADD COLUMN doubt TEXT;
ALTER TABLE adapter_versions ADD COLUMN needs_word INTEGER NOT NULL DEFAULT 0 CHECK (needs_word IN (0, 1))
"""


@migrations(name="0003_gate")
def _gate(db: Database) -> None:
    for statement in GATE.split(";\n"):
        db.execute(statement)
