"""How an adapter's sessions went, by the version that gave their first answer. Reads only.

A first answer is the first main-line turn of a session. It was taken well if it was judged above 0, and badly if below;
one that was judged 0, or not at all, says nothing and is not counted. Corrections are all answers of a session that
were taken badly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from clawd.store.connection import Connection

BASE = "base"
NEUTRAL_METRICS = ("gate/neutral_kl", "neutral/kl_base")
"""What an update may have measured of its drift on neutral prompts; the first that is there counts."""
CONFIDENT = 1.96  # standard deviations of a normal distribution on either side of 95 %

PER_VERSION = """
WITH judged AS (
    SELECT turns.session_id, turns.rowid AS place, turns.version_id,
        coalesce((SELECT reward FROM samples WHERE turn_id = turns.id), 0) AS reward
    FROM turns WHERE turns.kind = 'main' AND turns.adapter_id = ?1 AND turns.finished_at IS NOT NULL
        AND NOT (turns.state = 'discarded' AND turns.reason IN ('retried', 'aborted', 'error'))
),
firsts AS (
    SELECT session_id, version_id, reward, min(place),
        (SELECT count(*) FROM judged AS every WHERE every.session_id = judged.session_id AND every.reward < 0) AS bad
    FROM judged GROUP BY session_id
)
SELECT adapter_versions.number, adapter_versions.id, count(*) AS sessions, sum(firsts.reward <> 0) AS judged,
    sum(firsts.reward > 0) AS satisfied, sum(firsts.bad) AS corrections, updates.metrics
FROM firsts LEFT JOIN adapter_versions ON adapter_versions.id = firsts.version_id
LEFT JOIN updates ON updates.id = adapter_versions.update_id
GROUP BY adapter_versions.id ORDER BY adapter_versions.number
"""


@dataclass(frozen=True)
class VersionProgress:
    name: str  # `base` or `vN`
    sessions: int  # whose first answer it gave
    judged: int  # of these first answers, how many were taken well or badly
    satisfied: int
    corrections: int  # answers that were taken badly, in all of these sessions
    neutral_kl: float | None  # nats per token; none: its update didn't measure it

    @property
    def corrections_per_session(self) -> float | None:
        return self.corrections / self.sessions if self.sessions else None


class Progress:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def versions(self, adapter_id: str) -> list[VersionProgress]:
        """Those that began a session, oldest first; the bare base before all."""
        return [
            VersionProgress(
                name=BASE if row["number"] is None else f"v{row['number']}",
                sessions=row["sessions"],
                judged=row["judged"],
                satisfied=row["satisfied"],
                corrections=row["corrections"],
                neutral_kl=_neutral_kl(json.loads(row["metrics"]) if row["metrics"] else {}),
            )
            for row in self._connection.rows(PER_VERSION, (adapter_id,))
        ]


def _neutral_kl(metrics: dict[str, float]) -> float | None:
    return next((metrics[name] for name in NEUTRAL_METRICS if name in metrics), None)


def wilson(good: int, count: int) -> tuple[float, float]:
    """The 95 % confidence interval of a share (Wilson 1927); (0, 1) of nothing."""
    if count == 0:
        return 0.0, 1.0
    z2 = CONFIDENT**2
    share = good / count
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = CONFIDENT / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def verdict(versions: Sequence[VersionProgress]) -> str:
    """Whether it is getting better: the newest version with judged sessions against the oldest, or the base."""
    told = [one for one in versions if one.judged]
    if len(told) < 2:
        return "Is it getting better? Can't be told yet: judged sessions of two versions are needed."
    first, last = told[0], told[-1]
    (first_low, first_high), (last_low, last_high) = (wilson(one.satisfied, one.judged) for one in (first, last))
    if last_low > first_high:
        return f"Is it getting better? Yes: {last.name} is taken well more often than {first.name}."
    if last_high < first_low:
        return f"Is it getting better? No, worse: {last.name} is taken well less often than {first.name}."
    return f"Is it getting better? Can't be told yet: the intervals of {first.name} and {last.name} overlap."
