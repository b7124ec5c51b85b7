"""Whether a reply is still an answer: it is about its task, and it doesn't go round in circles.

Deterministic, on texts. The third test, how likely the base model finds it, needs the model: `scoring` measures it, and
`floor` says where the line is.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Sequence

from clawd.bench.personalize.tasks import NUMBER, Task

FEWEST_FACTS = 2  # of the task's names and numbers
WINDOW = 4  # words
MOST_REPEATED = 0.35  # share of windows that have stood there before
FLOOR_DEVIATIONS = 3.0


def deals_with(task: Task, reply: str) -> bool:
    """Takes up names or numbers of the task, and is no loop."""
    return facts_reused(task, reply) >= FEWEST_FACTS and not is_loop(reply)


def facts_reused(task: Task, reply: str) -> int:
    """How many of the task's names and numbers the reply mentions."""
    numbers = {number.replace(",", "") for number in NUMBER.findall(reply)}
    names = {name for name in task.names if re.search(rf"\b{re.escape(name)}", reply)}
    return len(task.numbers & numbers) + len(names)


def is_loop(reply: str) -> bool:
    """Whether much of it has stood there before, or hardly a word of it is another one."""
    words = re.findall(r"\w+|[^\w\s]", reply.lower())
    windows = [tuple(words[at : at + WINDOW]) for at in range(len(words) - WINDOW + 1)]
    if len(windows) < 3 * WINDOW:
        return False  # too short to go round
    repeated = sum(count - 1 for count in Counter(windows).values())
    return repeated / len(windows) > MOST_REPEATED


def floor(base_logprobs: Sequence[float]) -> float:
    """Mean log-probability per token under the base below which a reply is no language of its.

    From the base's own answers, asked plainly and with the user's wish in the prompt: a reply that satisfies is
    unlikelier than a plain one, which mustn't be held against it.
    """
    return statistics.fmean(base_logprobs) - FLOOR_DEVIATIONS * statistics.stdev(base_logprobs)
