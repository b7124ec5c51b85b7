"""What the bare base does, before anything is learnt.

How often it satisfies each user by itself, how often with their wish in the prompt (what distillation alone can reach),
how likely its own answers are, and what it answers to neutral prompts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from clawd.bench.personalize.answer_check import deals_with, floor
from clawd.bench.personalize.driver import Chat
from clawd.bench.personalize.record import Conditions
from clawd.bench.personalize.scoring import Reply, Scorer
from clawd.bench.personalize.tasks import Task
from clawd.bench.personalize.users.persona import Persona
from clawd.learner.hints import with_hint

NEUTRAL_TOKENS = 24
AT_A_TIME = 4  # requests


class UserBase(BaseModel):
    """Of one user. Rates are shares of first replies."""

    model_config = ConfigDict(frozen=True)
    replies: int
    base_rate: float  # satisfied and about the task
    ceiling: float  # the same, with the wish in the prompt
    about_task: float  # of the plain ones
    logprob_floor: float  # below which a reply is no answer; nats per token
    examples: list[Reply]


class Base(BaseModel):
    model_config = ConfigDict(frozen=True)
    conditions: Conditions
    users: dict[str, UserBase]
    neutral: list[Reply]
    held_out: str


def neutral_material() -> tuple[list[str], str]:
    """The neutral prompts, and the held-out text. Neither is trained on anywhere."""
    told = json.loads(files("clawd.bench.personalize").joinpath("neutral.json").read_text())
    return told["prompts"], told["held_out"]


def neutral(chat: Chat, base_name: str, conditions: Conditions) -> Base:
    """The base's answers to the neutral prompts, and no user yet. Raises BenchFailed."""
    texts, held_out = neutral_material()
    texts = texts[: conditions.neutral_prompts]
    answers = _all(chat, base_name, texts, texts, NEUTRAL_TOKENS, temperature=0)
    return Base(conditions=conditions, users={}, neutral=answers, held_out=held_out)


def of_user(chat: Chat, base_name: str, base: Path, persona: Persona, tasks: Sequence[Task]) -> UserBase:
    """Ask the bare base `tasks`, over HTTP, and score its replies. Raises BenchFailed."""
    asked = [persona.ask(task, random.Random(f"base {at}")) for at, task in enumerate(tasks)]  # noqa: S311  no secret
    told = [str(with_hint([{"role": "user", "content": text}], persona.wish)[0]["content"]) for text in asked]
    plain = _all(chat, base_name, asked, asked, persona.reply_tokens)
    hinted = _all(chat, base_name, told, asked, persona.reply_tokens)
    return UserBase(
        replies=len(tasks),
        base_rate=_rate(persona, tasks, plain),
        ceiling=_rate(persona, tasks, hinted),
        about_task=sum(deals_with(task, reply.text) for task, reply in zip(tasks, plain, strict=True)) / len(tasks),
        logprob_floor=floor(Scorer(base).replies([*plain, *hinted])),
        examples=[*plain[:3], *hinted[:3]],
    )


def _rate(persona: Persona, tasks: Sequence[Task], replies: Sequence[Reply]) -> float:
    pairs = zip(tasks, replies, strict=True)
    return sum(persona.satisfies(reply.text) and deals_with(task, reply.text) for task, reply in pairs) / len(tasks)


def _all(chat: Chat, model: str, sent: Sequence[str], asked: Sequence[str], tokens: int, **more: float) -> list[Reply]:
    """The replies to `sent`, each noted as one to what stands in the same place of `asked`."""

    def ask(at: int) -> Reply:
        message = {"role": "user", "content": sent[at]}
        completion = chat.complete([message], model=model, side=True, max_tokens=tokens, seed=at, **more)
        return Reply(asked=asked[at], text=completion.text)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return list(pool.map(ask, range(len(sent))))
