"""The answers that the gate looks at: of the new version, of the one that serves now, of the base.

The new version answers everything. The base's answers to the bundled prompts are kept in the cache folder: they are the
same for all updates of a base. The version that serves now answers the own messages alone; what it was like on the
bundled ones stands in its manifest. Nothing of a person's messages is kept.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from clawd.errors import UpdateFailed
from clawd.learner.job import ADAPTER_GGUF, Job
from clawd.learner.train.courtesy import Courtesy
from clawd.learner.train.probe import Answer, Answers, Asked, Question

TIMEOUT_S = 600.0
KEPT = TypeAdapter(list[Answer])


@dataclass(frozen=True)
class Given:
    """Answers to the bundled prompts and to the own messages, in the order of `Probes`."""

    neutral: list[Answer] = field(default_factory=list)
    own: list[Answer] = field(default_factory=list)


def ask_all(job: Job, adapter: Path, threads: int, courtesy: Courtesy) -> dict[str, Given]:
    """The answers of `candidate`, `base` and, where there is a parent, `active` (own messages only).

    Raises: UpdateFailed: llama.cpp could not be asked.
    """
    neutral, own = job.probes.neutral, job.probes.own
    kept = _kept(job)
    asked = {"candidate": Asked(adapter=adapter, prompts=neutral + own)}
    asked["base"] = Asked(adapter=None, prompts=own if kept is not None else neutral + own)
    if job.parent is not None:
        asked["active"] = Asked(adapter=job.parent / ADAPTER_GGUF, prompts=own)
    due = {name: one for name, one in asked.items() if one.prompts}
    found: dict[str, list[Answer]] = {name: [] for name in asked}
    if due:
        question = Question(
            base=job.base, asked=list(due.values()), most=job.settings.gate.answer_tokens, threads=threads
        )
        found |= dict(zip(due, ask(question, courtesy).answers, strict=True))
    if kept is None:
        kept = found["base"][: len(neutral)]
        _keep(job, kept)
        found["base"] = found["base"][len(neutral) :]
    count = len(neutral)
    given = {
        "candidate": Given(found["candidate"][:count], found["candidate"][count:]),
        "base": Given(kept, found["base"]),
    }
    return given | ({"active": Given([], found["active"])} if "active" in asked else {})


def ask(question: Question, courtesy: Courtesy) -> Answers:
    """What llama.cpp answers, in a child process. Raises: UpdateFailed: it could not be asked."""
    command = [sys.executable, "-m", "clawd.learner.train.probe"]
    try:
        return Answers.model_validate_json(courtesy.run(command, TIMEOUT_S, question.model_dump_json()))
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise UpdateFailed(
            f"The gate could not have the version answer (status {error.returncode}): {last_line}"
        ) from error
    except (subprocess.TimeoutExpired, ValidationError) as error:
        raise UpdateFailed(f"The gate could not have the version answer: {error}") from error


def _path(job: Job) -> Path:
    asked = json.dumps([job.probes.neutral, job.settings.gate.answer_tokens])
    digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
    return job.cache / f"probes-{job.base_fingerprint[:16]}-{digest}.json"


def _kept(job: Job) -> list[Answer] | None:
    """None: they must be given anew, because there are none or the file is damaged."""
    if not job.probes.neutral:
        return []
    try:
        answers = KEPT.validate_json(_path(job).read_bytes())
    except (OSError, ValidationError):
        return None
    return answers if len(answers) == len(job.probes.neutral) else None


def _keep(job: Job, answers: list[Answer]) -> None:
    path = _path(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.aside")
    aside.write_bytes(KEPT.dump_json(answers))
    aside.replace(path)
