"""What the model says of replies and of its versions: asked of a child process, so that no weights stay in this one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from clawd import lifeline
from clawd.errors import BenchFailed

SCORER = "clawd.bench.personalize.scorer"
LAST_LINES = 5  # of a failed child's complaints


class Reply(BaseModel):
    """A reply to a first message."""

    model_config = ConfigDict(frozen=True)
    asked: str
    text: str


class Questions(BaseModel):
    """What the child is asked. `adapters`: names to GGUF files."""

    model_config = ConfigDict(frozen=True)
    base: Path
    threads: int
    replies: list[Reply] = []
    neutral: list[Reply] = []  # the base's own answers
    held_out: str = ""
    adapters: dict[str, Path] = {}


class Drift(BaseModel):
    """How far a version has moved where nobody asked for a change."""

    model_config = ConfigDict(frozen=True)
    neutral_kl: float  # mean KL(version ‖ base) per token of the neutral answers, nats
    perplexity_ratio: float  # of the held-out text, version over base


class Answers(BaseModel):
    model_config = ConfigDict(frozen=True)
    reply_logprobs: list[float]  # mean per token under the base, nats; as many as there were replies
    drift: dict[str, Drift]


@dataclass(frozen=True)
class Scorer:
    """Scores with one base; `neutral` are its own answers to the neutral prompts."""

    base: Path
    neutral: Sequence[Reply] = ()
    held_out: str = ""

    def replies(self, replies: Sequence[Reply]) -> list[float]:
        """Raises BenchFailed."""
        return _ask(Questions(base=self.base, threads=_threads(), replies=list(replies))).reply_logprobs

    def all(self, replies: Sequence[Reply], adapters: Mapping[str, Path]) -> Answers:
        """Raises BenchFailed."""
        return _ask(
            Questions(
                base=self.base,
                threads=_threads(),
                replies=list(replies),
                neutral=list(self.neutral),
                held_out=self.held_out,
                adapters=dict(adapters),
            )
        )


def _threads() -> int:
    return psutil.cpu_count(logical=False) or 1


def _ask(questions: Questions) -> Answers:
    command = [sys.executable, "-m", SCORER]
    done = subprocess.run(
        command,
        input=questions.model_dump_json(),
        capture_output=True,
        text=True,
        check=False,
        env=lifeline.environment(),
    )
    if done.returncode != 0:
        told = " ".join(done.stderr.strip().splitlines()[-LAST_LINES:])
        raise BenchFailed(f"Scoring with {questions.base} ended with status {done.returncode}: {told}")
    return Answers.model_validate_json(done.stdout)
