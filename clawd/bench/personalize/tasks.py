"""Word problems with checked answers: made from templates by a seed, or read from a file in GSM8K's JSON form.

A generated problem's answer is what its template's expression comes to, a whole number above 0; its steps are the lines
of arithmetic that lead there. What is read from a file has an answer and no steps.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

from clawd.bench.personalize.templates import NAMES, TEMPLATES, Template
from clawd.errors import BenchFailed

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")  # inside a sentence, so that it isn't merely its first word
FIRST_WORD = re.compile(r"[A-Z][a-z]+")


@dataclass(frozen=True)
class Task:
    question: str
    answer: str
    steps: tuple[str, ...]  # lines of arithmetic; empty: not known

    @property
    def numbers(self) -> frozenset[str]:
        """Of the question, the steps and the answer: what a reply that deals with it will take up."""
        told = " ".join((self.question, *self.steps, self.answer))
        return frozenset(number.replace(",", "") for number in NUMBER.findall(told))

    @property
    def names(self) -> frozenset[str]:
        """Names of people in the question."""
        first = FIRST_WORD.match(self.question)
        known = {name for name in (*NAME.findall(self.question), first.group() if first else "") if name in NAMES}
        return frozenset(known or NAME.findall(self.question))


def generate(seed: int, count: int) -> list[Task]:
    """`count` problems; each template comes up once before any comes up again."""
    lot = random.Random(f"tasks {seed}")  # noqa: S311  no secret
    order: list[Template] = []
    while len(order) < count:
        order += lot.sample(TEMPLATES, len(TEMPLATES))
    return [_filled(template, lot) for template in order[:count]]


def _filled(template: Template, lot: random.Random) -> Task:
    values = {name: lot.randint(*bounds) for name, bounds in template.numbers.items()}
    name, other = lot.sample(NAMES, 2)
    steps: list[str] = []
    known: dict[str, int] = dict(values)
    for step in template.steps:
        left, operator, right = step.split()
        a, b = (known[each] if each in known else int(each) for each in (left, right))
        known[f"r{len(steps) + 1}"] = result = OPERATORS[operator](a, b)
        steps.append(f"{a} {operator} {b} = {result}")
    return Task(template.text.format(name=name, other=other, **values), str(result), tuple(steps))


def _divided(a: int, b: int) -> int:
    if a % b:
        raise ValueError(f"{a} / {b} is no whole number: the template is wrong")
    return a // b


OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divided,
}


def read_tasks(path: Path, seed: int, count: int) -> list[Task]:
    """`count` problems of a file, by lot. Its form: a JSON list of {"question", "ground_truth_answer"}.

    Raises:
        BenchFailed: it isn't in that form, or has fewer.
    """
    try:
        tasks = [Task(item["question"], str(item["ground_truth_answer"]), ()) for item in json.loads(path.read_text())]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchFailed(f'{path} is no JSON list of {{"question", "ground_truth_answer"}}: {error!r}.') from None
    if len(tasks) < count:
        raise BenchFailed(f"{path} holds {len(tasks)} problems, {count} are needed: take fewer --sessions.")
    return random.Random(f"tasks {seed}").sample(tasks, count)  # noqa: S311  no secret
