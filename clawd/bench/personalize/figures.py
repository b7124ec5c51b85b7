"""From the records of an experiment to the report's rows and goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from clawd.bench.personalize.baseline import Base
from clawd.bench.personalize.driver import Session, prompt_tokens
from clawd.bench.personalize.merit import Curve, Merit, curves, goals, merit
from clawd.bench.personalize.record import BASE, JudgeReading, RunRecord
from clawd.bench.personalize.scoring import Drift
from clawd.bench.report import Report

Row = dict[str, Any]

LAST_SESSIONS = 10
MAIN_ARMS = ("hybrid", "joint")


def report(command: str, base: Base, records: Sequence[RunRecord], users: Sequence[str]) -> Report:
    rows = [_base_row(base, user) for user in users]
    merits: dict[tuple[str, str], Merit] = {}
    for arm in dict.fromkeys(record.arm for record in records):
        for user in users:
            found = [(record, curve) for record in records if record.arm == arm for curve in curves(record, base)]
            mine = [(record, curve) for record, curve in found if curve.user == user]
            if mine:
                merits[arm, user] = merit([curve.within_bound for _, curve in mine])
                rows.append(_arm_row(arm, user, mine, merits[arm, user]))
    rows += [_judge_row(user, records) for user in users]
    return Report("personalize", command, rows, goals(merits, _worst(records), base, users))


def _base_row(base: Base, user: str) -> Row:
    told = base.users[user]
    return {
        "user": user,
        "replies": told.replies,
        "base_rate": round(told.base_rate, 3),
        "ceiling_of_distillation": round(told.ceiling, 3),
        "about_task": round(told.about_task, 3),
        "logprob_floor": round(told.logprob_floor, 3),
    }


def _arm_row(arm: str, user: str, found: Sequence[tuple[RunRecord, Curve]], merit_within: Merit) -> Row:
    sessions = [record.sessions[place] for record, _ in found for place in record.of_user(user)]
    all_curves = [curve for _, curve in found]
    last = [_last_drift(curve) for curve in all_curves]
    return {
        "arm": f"{arm} / {user}",
        "seeds": len(found),
        "sessions": merit_within.played,
        "three_in_a_row_within_drift": merit_within.told(),
        "three_in_a_row_at_any_drift": merit([curve.successes for curve in all_curves]).told(),
        "success_first_sessions": _share(all_curves, slice(0, LAST_SESSIONS)),
        "success_last_sessions": _share(all_curves, slice(-LAST_SESSIONS, None)),
        "satisfied_but_no_answer": sum(curve.outcomes.count("not an answer") for curve in all_curves),
        "versions": _told([len(record.drift) for record, _ in found]),
        "last_neutral_kl": _told([drift.neutral_kl for drift in last]),
        "last_perplexity_ratio": _told([drift.perplexity_ratio for drift in last]),
        "words_of_first_reply": _words(sessions),
        "corrections_per_session": round(_corrections(sessions), 2),
        "prompt_tokens_per_request": round(statistics.fmean(prompt_tokens(sessions)), 1),
        "first_prompt_tokens": round(statistics.fmean(session.exchanges[0].prompt_tokens for session in sessions), 1),
        "minutes_per_run": _told([record.seconds / 60 for record, _ in found], digits=1),
    }


def _last_drift(curve: Curve) -> Drift:
    return curve.drift[-1]


def _share(all_curves: Sequence[Curve], part: slice) -> float:
    return round(statistics.fmean(statistics.fmean(curve.successes[part]) for curve in all_curves), 3)


def _told(values: Sequence[float], digits: int = 4) -> str:
    """Median, and the range where there are several."""
    middle, low, high = (round(f(values), digits) for f in (statistics.median, min, max))
    return f"{middle:g}" if low == high else f"{middle:g} ({low:g}–{high:g})"


def _words(sessions: Iterable[Session]) -> str:
    """Mean per version."""
    by_version: dict[str, list[int]] = {}
    for session in sessions:
        by_version.setdefault(session.answered_by, []).append(len(session.exchanges[0].reply.split()))
    order = sorted(by_version, key=lambda name: 0 if name == BASE else int(name.removeprefix("v")))
    return ", ".join(f"{name} {statistics.fmean(by_version[name]):.0f}" for name in order)


def _corrections(sessions: Sequence[Session]) -> float:
    told = [sum(each.mood != "satisfied" for each in session.exchanges) for session in sessions]
    return statistics.fmean(told)


def _judge_row(user: str, records: Sequence[RunRecord]) -> Row:
    """Of the runs of this user alone, or with others in a joint one."""
    total = JudgeReading()
    for record in records:
        if any(session.user == user for session in record.sessions):
            total = total.plus(record.judge.get(user, JudgeReading()))
    return {
        "judge_of": user,
        "reactions": total.reactions,
        "read_right": _rate(total.right, total.reactions),
        "read_as_the_opposite": _rate(total.opposite, total.reactions),
        "corrections_with_hint": _rate(total.corrections_with_hint, total.corrections),
    }


def _rate(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def _worst(records: Iterable[RunRecord]) -> Drift | None:
    """Of all versions of the main arms that have answered."""
    served = [
        record.drift[session.answered_by]
        for record in records
        if record.arm in MAIN_ARMS
        for session in record.sessions
        if session.answered_by != BASE
    ]
    if not served:
        return None
    return Drift(
        neutral_kl=round(max(drift.neutral_kl for drift in served), 4),
        perplexity_ratio=round(max(drift.perplexity_ratio for drift in served), 4),
    )
