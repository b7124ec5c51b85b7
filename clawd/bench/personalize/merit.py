"""The arithmetic on records: successes, sessions until three in a row, medians with ranges, goals. No daemon."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from clawd.bench.personalize.baseline import Base
from clawd.bench.personalize.record import BASE, RunRecord
from clawd.bench.personalize.scoring import Drift
from clawd.bench.report import Goal

IN_A_ROW = 3
MOST_NEUTRAL_KL = 0.05  # nats per token
MOST_PERPLEXITY = 1.05  # times the base's
MOST_BASE_RATE = 0.2
HYBRID_GOAL, JOINT_GOAL = 15, 12  # sessions, as published for this experiment with a far larger model
NO_DRIFT = Drift(neutral_kl=0.0, perplexity_ratio=1.0)

Outcome = Literal["success", "not an answer", "not satisfied"]


@dataclass(frozen=True)
class Curve:
    """One user of one run: what became of each first reply, in order."""

    user: str
    outcomes: tuple[Outcome, ...]
    drift: tuple[Drift, ...]  # of the version that answered
    answered_by: tuple[str, ...]

    @property
    def successes(self) -> list[bool]:
        return [outcome == "success" for outcome in self.outcomes]

    @property
    def within_bound(self) -> list[bool]:
        """Successes of versions that have kept the model's mind."""
        return [won and is_within(drift) for won, drift in zip(self.successes, self.drift, strict=True)]


def is_within(drift: Drift) -> bool:
    return drift.neutral_kl <= MOST_NEUTRAL_KL and drift.perplexity_ratio <= MOST_PERPLEXITY


def curves(record: RunRecord, base: Base) -> list[Curve]:
    """One per user of the run."""
    return [_curve(record, base, user) for user in dict.fromkeys(session.user for session in record.sessions)]


def _curve(record: RunRecord, base: Base, user: str) -> Curve:
    places = record.of_user(user)
    lowest = base.users[user].logprob_floor
    answered_by = tuple(record.sessions[place].answered_by for place in places)
    return Curve(
        user=user,
        outcomes=tuple(_outcome(record, place, lowest) for place in places),
        drift=tuple(NO_DRIFT if name == BASE else record.drift[name] for name in answered_by),
        answered_by=answered_by,
    )


def _outcome(record: RunRecord, place: int, lowest: float) -> Outcome:
    session = record.sessions[place]
    if not session.satisfied:
        return "not satisfied"
    return "success" if session.about_task and record.reply_logprobs[place] >= lowest else "not an answer"


def sessions_until(successes: Sequence[bool]) -> int | None:
    """Sessions played when the first `IN_A_ROW` in a row are complete; None: never."""
    run = 0
    for played, won in enumerate(successes, start=1):
        run = run + 1 if won else 0
        if run == IN_A_ROW:
            return played
    return None


@dataclass(frozen=True)
class Merit:
    """Over seeds. One that never came to it counts as one session more than were played, which is too few."""

    median: float
    lowest: int
    highest: int
    played: int

    def told(self) -> str:
        """Median and range, for a table."""
        return f"{self._told(self.median)} ({self._told(self.lowest)}–{self._told(self.highest)})"

    def _told(self, value: float) -> str:
        return f">{self.played}" if value > self.played else f"{value:g}"


def merit(of_seeds: Sequence[Sequence[bool]]) -> Merit:
    """`of_seeds`: of each seed, whether each session succeeded."""
    played = min(len(successes) for successes in of_seeds)
    counts = [sessions_until(successes[:played]) or played + 1 for successes in of_seeds]
    return Merit(statistics.median(counts), min(counts), max(counts), played)


Merits = Mapping[tuple[str, str], Merit]
"""By arm and user."""


def over_users(merits: Merits, arm: str, users: Sequence[str]) -> float | None:
    """Median of the users' medians; None: not all of them were measured under this arm."""
    found = [merits[arm, user].median for user in users if (arm, user) in merits]
    return statistics.median(found) if found and len(found) == len(users) else None


def settled(merits: Merits, arm: str, users: Sequence[str], goal: float) -> float | None:
    """As `over_users`; None also where too few sessions were played to tell whether the goal is met."""
    value = over_users(merits, arm, users)
    played = min((found.played for (name, user), found in merits.items() if name == arm and user in users), default=0)
    return None if value is None or played < value <= goal else value


def goals(merits: Merits, worst: Drift | None, base: Base, users: Sequence[str]) -> list[Goal]:
    """All that were promised, in order. `worst`: of the hybrid arms' versions that answered; None: none did."""
    value = {arm: over_users(merits, arm, users) for arm in ("hybrid", "grpo", "opd", "hint-random")}
    return [
        Goal("hybrid_sessions_to_three_in_a_row", settled(merits, "hybrid", users, HYBRID_GOAL), HYBRID_GOAL, "lower"),
        Goal("joint_sessions_to_three_in_a_row", settled(merits, "joint", users, JOINT_GOAL), JOINT_GOAL, "lower"),
        Goal("sessions_saved_over_grpo", _saved(value["grpo"], value["hybrid"]), 1, "higher"),
        Goal("sessions_saved_over_opd", _saved(value["opd"], value["hybrid"]), 1, "higher"),
        Goal("sessions_saved_over_random_hint", _saved(value["hint-random"], value["hybrid"]), 1, "higher"),
        Goal("hybrid_worst_neutral_kl", worst.neutral_kl if worst else None, MOST_NEUTRAL_KL, "lower"),
        Goal("hybrid_worst_perplexity_ratio", worst.perplexity_ratio if worst else None, MOST_PERPLEXITY, "lower"),
        Goal("highest_base_rate", max(base.users[user].base_rate for user in users), MOST_BASE_RATE, "lower"),
    ]


def _saved(other: float | None, hybrid: float | None) -> float | None:
    """None: not both were measured. At least as many, where the other one never came to it."""
    return None if other is None or hybrid is None else other - hybrid
