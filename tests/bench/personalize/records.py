"""Records as runs leave them, from plain lists."""

from __future__ import annotations

from collections.abc import Sequence

from clawd.bench.personalize.baseline import Base, UserBase
from clawd.bench.personalize.driver import Exchange, Session
from clawd.bench.personalize.record import Conditions, JudgeReading, RunRecord
from clawd.bench.personalize.scoring import Drift

CONDITIONS = Conditions(
    model="tiny.gguf",
    model_sha256="0" * 64,
    tasks="generated",
    user_voice="scripted",
    base_replies=4,
    neutral_prompts=2,
    settings=[],
)
FLOOR = -2.0


def base(*users: str) -> Base:
    told = UserBase(replies=4, base_rate=0.1, ceiling=0.5, about_task=1.0, logprob_floor=FLOOR, examples=[])
    return Base(conditions=CONDITIONS, users=dict.fromkeys(users, told), neutral=[], held_out="")


def session(user: str, number: int, outcome: str, answered_by: str = "base") -> Session:
    """`outcome`: `+` succeeds, `-` doesn't satisfy, `o` satisfies and is off the task."""
    satisfied = outcome != "-"
    exchange = Exchange("chatcmpl-1", "a reply of five words", "satisfied" if satisfied else "corrects", "ok", 50)
    return Session(user, number, "asked", answered_by, satisfied, outcome != "o", (exchange,))


def record(
    arm: str,
    seed: int,
    outcomes: dict[str, str],
    answered_by: Sequence[str] = (),
    drift: dict[str, Drift] | None = None,
) -> RunRecord:
    """`outcomes`: of each user, a letter per session."""
    sessions = [
        session(user, number, letter, answered_by[number] if answered_by else "base")
        for user, letters in outcomes.items()
        for number, letter in enumerate(letters)
    ]
    return RunRecord(
        conditions=CONDITIONS,
        arm=arm,
        flags=[],
        seed=seed,
        sessions_per_user=len(next(iter(outcomes.values()))),
        sessions=sessions,
        reply_logprobs=[-1.0] * len(sessions),
        drift=drift or {},
        updates=[],
        judge={
            user: JudgeReading(reactions=10, right=8, opposite=1, corrections=5, corrections_with_hint=4)
            for user in outcomes
        },
        seconds=60.0,
    )
