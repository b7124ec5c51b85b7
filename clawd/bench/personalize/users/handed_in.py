"""What a pupil has handed in: the steps of a task, half of the time with a slip in the last one."""

from __future__ import annotations

import random

from clawd.bench.personalize.tasks import Task

SLIPS = (-10, -2, -1, 1, 2, 10)


def handed_in(task: Task, lot: random.Random) -> str:
    """In the pupil's words; only the result, where the steps aren't known."""
    slip = lot.choice(SLIPS) if lot.random() < 0.5 else 0
    result = _shifted(task.answer, slip)
    if not task.steps:
        return f"It is {result}."
    *before, last = task.steps
    steps = [*before, f"{last.rpartition('=')[0].strip()} = {result}"]
    return f"{', then '.join(steps)}. So it is {result}."


def _shifted(answer: str, by: int) -> str:
    """Answers of files may be decimal, with thousands' commas, or no number at all, which can't be shifted."""
    try:
        value = float(answer.replace(",", "")) + by
    except ValueError:
        return answer
    return str(int(value)) if value.is_integer() else str(value)
