"""Asking what a version has become: its distributions of a reader process, its answers of llama.cpp on the served file.

The reader (`reader.py`) is the trainer's own forward pass in float32. llama.cpp rounds activations to eight bits, so
that an adapter that changes next to nothing already measures as some thousandths of a nat of KL: too much to compare
small effects by. That the served file agrees with the trainer is what each update validates.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil
from pydantic import BaseModel, ConfigDict

from clawd import lifeline
from clawd.bench.demo.gain import Gain, Preference, held_out_ids
from clawd.bench.demo.persona import HELD_OUT, satisfies
from clawd.config import LoraSettings
from clawd.errors import BenchFailed
from clawd.learner.job import ADAPTER_GGUF
from clawd.learner.probes import PROMPTS
from clawd.learner.train.answers import ask
from clawd.learner.train.courtesy import Courtesy
from clawd.learner.train.probe import Answer, Asked, Question
from clawd.model.prompt import PromptRenderer

READER = "clawd.bench.ablate.reader"
NEUTRAL_PROMPTS = 16
NEUTRAL_TOKENS = 32
ANSWER_TOKENS = 64
LAST_LINES = 5  # of a failed child's complaints


class Text(BaseModel):
    """A prompt and what follows it, as token ids."""

    model_config = ConfigDict(frozen=True)
    prompt: list[int]
    reply: list[int]


class Material(BaseModel):
    """What the reader reads under the base and under every version."""

    model_config = ConfigDict(frozen=True)
    base: Path
    base_fingerprint: str
    cache: Path
    lora: LoraSettings
    threads: int
    satisfying: list[Text]  # held-out replies that are as the user wants them
    other: list[Text]  # and that aren't
    neutral: list[Text]  # the base's own answers


class Read(BaseModel):
    """Of one version, or of the base."""

    model_config = ConfigDict(frozen=True)
    satisfying: float  # mean log-probability per token of a reply, meaned over the replies, nats
    other: float
    neutral_kl: float  # mean KL(version ‖ base) per token of the neutral answers, nats; exact over the vocabulary


@dataclass(frozen=True)
class Spoken:
    """Greedy answers to the held-out questions."""

    tokens: float  # mean length, at most `ANSWER_TOKENS`
    cut: float  # share that doesn't end within that
    satisfied: float  # share that is one short sentence

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Spoken:
        count = len(answers)
        return cls(
            tokens=sum(len(answer.ids) for answer in answers) / count,
            cut=sum(not answer.ended for answer in answers) / count,
            satisfied=sum(satisfies(answer.text) for answer in answers) / count,
        )


class Meter:
    """Measures versions of one base, one after another. A context manager; ends the reader's process."""

    def __init__(self, base: Path, base_fingerprint: str, cache: Path, renderer: PromptRenderer) -> None:
        self._base = base
        self._threads = psutil.cpu_count(logical=False) or 1
        self._questions = [_prompt(renderer, question) for question, *_ in HELD_OUT]
        neutral = [_prompt(renderer, text) for text in PROMPTS[:NEUTRAL_PROMPTS]]
        answers = self._answers(None, neutral, NEUTRAL_TOKENS)
        pairs = held_out_ids(renderer)
        self._material = Material(
            base=base,
            base_fingerprint=base_fingerprint,
            cache=cache,
            lora=LoraSettings(),
            threads=self._threads,
            satisfying=[Text(prompt=prompt, reply=good) for prompt, good, _ in pairs],
            other=[Text(prompt=prompt, reply=bad) for prompt, _, bad in pairs],
            neutral=[
                Text(prompt=p, reply=answer.ids) for p, answer in zip(neutral, answers, strict=True) if answer.ids
            ],
        )

    def __enter__(self) -> Meter:
        self._complaints: IO[bytes] = tempfile.TemporaryFile()
        self._reader = subprocess.Popen(
            [sys.executable, "-m", READER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env=lifeline.environment(),
        )
        try:
            told = self._read(self._material.model_dump_json())
        except BaseException:
            self.__exit__()
            raise
        self._of_base = Preference(told.satisfying, told.other)
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.kill()
        self._reader.communicate()
        self._complaints.close()

    def distributions(self, version: Path) -> tuple[Gain, float]:
        """The preference gain as the demo has it, and the KL to the base on neutral prompts. Raises BenchFailed."""
        told = self._read(str(version))
        return Gain(self._of_base, Preference(told.satisfying, told.other)), told.neutral_kl

    def answers(self, version: Path | None) -> Spoken:
        """None: of the base. Raises UpdateFailed: llama.cpp could not be asked."""
        adapter = None if version is None else version / ADAPTER_GGUF
        return Spoken.of(self._answers(adapter, self._questions, ANSWER_TOKENS))

    def _answers(self, adapter: Path | None, prompts: list[list[int]], most: int) -> list[Answer]:
        asked = Asked(adapter=adapter, prompts=prompts)
        return ask(Question(base=self._base, asked=[asked], most=most, threads=self._threads), Courtesy()).answers[0]

    def _read(self, line: str) -> Read:
        assert self._reader.stdin is not None and self._reader.stdout is not None
        try:
            self._reader.stdin.write(line + "\n")
            self._reader.stdin.flush()
            told = self._reader.stdout.readline()
        except BrokenPipeError:
            told = ""
        if not told:
            status = self._reader.wait()
            self._complaints.seek(0)
            last = " ".join(self._complaints.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:])
            raise BenchFailed(f"Reading with {self._base} ended with status {status}: {last}")
        return Read.model_validate_json(told)


def _prompt(renderer: PromptRenderer, question: str) -> list[int]:
    return renderer.prompt_ids([{"role": "user", "content": question}])
