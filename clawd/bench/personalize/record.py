"""What one run (an arm, its users, a seed) leaves: one JSON file, whole or not there. It is never run again.

A file says under which conditions it was made; a run under others doesn't take it for its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from clawd.bench.personalize.driver import Session
from clawd.bench.personalize.scoring import Drift
from clawd.errors import BenchFailed
from clawd.paths import write_privately

BASE = "base"
"""The name of what answers before the first version."""


class Conditions(BaseModel):
    """What figures of one folder have in common."""

    model_config = ConfigDict(frozen=True)
    model: str  # file name
    model_sha256: str
    tasks: str  # `generated`, or a file's name
    user_voice: str  # `scripted`, or the model that plays the user
    base_replies: int
    neutral_prompts: int
    settings: list[str]  # flags of the daemon that all arms share


class JudgeReading(BaseModel):
    """What the judge, who sees texts only, made of the users' reactions."""

    model_config = ConfigDict(frozen=True)
    reactions: int = 0
    right: int = 0  # +1 of a content user, -1 of another
    opposite: int = 0  # -1 of a content user, +1 of another
    corrections: int = 0
    corrections_with_hint: int = 0

    def plus(self, other: JudgeReading) -> JudgeReading:
        mine, theirs = self.model_dump(), other.model_dump()
        return JudgeReading(**{name: mine[name] + theirs[name] for name in mine})


class RunRecord(BaseModel):
    model_config = ConfigDict(frozen=True)
    conditions: Conditions
    arm: str
    flags: list[str]
    seed: int
    sessions_per_user: int
    sessions: list[Session]  # in the order in which they were played
    reply_logprobs: list[float]  # of the first replies, under the base; as many as sessions
    drift: dict[str, Drift]  # by version, `v1` and so on
    updates: list[dict[str, object]]  # number, state, reason, metrics
    judge: dict[str, JudgeReading]  # by user; empty: nothing was judged
    seconds: float

    def of_user(self, user: str) -> list[int]:
        """Places in `sessions`, in order."""
        return [place for place, session in enumerate(self.sessions) if session.user == user]


Kept = TypeVar("Kept", bound=BaseModel)


@dataclass(frozen=True)
class Records:
    """The folder of an experiment."""

    folder: Path

    def path(self, arm: str, users: Sequence[str], seed: int) -> Path:
        return self.folder / "runs" / f"{arm}--{'+'.join(users)}--seed{seed}.json"

    @property
    def base_path(self) -> Path:
        return self.folder / "base.json"

    def read(self, path: Path, kind: type[Kept]) -> Kept | None:
        """None: there is no such file.

        Raises:
            BenchFailed: it is damaged.
        """
        if not path.exists():
            return None
        try:
            return kind.model_validate_json(path.read_text())
        except (OSError, ValidationError) as error:
            raise BenchFailed(f"{path} is no record of this benchmark; remove it to measure again. {error}") from None

    def keep(self, path: Path, record: BaseModel) -> None:
        """Raises BenchFailed: it can't be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_privately(path, record.model_dump_json(indent=1))
        except OSError as error:
            raise BenchFailed(f"{path} can't be written: {error.strerror}. --out names another folder.") from None


def require_same(path: Path, made: object, now: object) -> None:
    """Raises BenchFailed: a kept record was made under other conditions."""
    if made != now:
        raise BenchFailed(
            f"{path} was made under other conditions ({made}, now {now}): give another folder with --out."
        )
