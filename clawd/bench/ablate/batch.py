"""The batch that every variant learns from: 16 of the served model's own answers, sampled once by a real daemon.

The user is the demo's: they want one short sentence. Rejected answers carry two or three hint candidates, of which one
says what the user wants and one doesn't, in an order that tells nothing; so it matters which one teaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clawd.bench.daemon import throw_away_daemon
from clawd.bench.demo.persona import CORRECTIONS, QUESTIONS, satisfies
from clawd.bench.personalize.arms import NO_LEARNING
from clawd.bench.personalize.driver import Chat, Completion
from clawd.bench.personalize.memory import Messages
from clawd.config import ModelSettings
from clawd.errors import BenchFailed
from clawd.learner.hints import Render, hint_prompts
from clawd.learner.job import Sample
from clawd.model.names import base_name
from clawd.store import Store
from clawd.store.cards import same_rule
from clawd.store.records import Hint, Turn

REJECTED, PRAISED = 12, 4
ANSWER_TOKENS = 48  # most rejected answers are longer and cut; the lesson is in their beginnings
ROUNDS = 5  # of all questions, until there are enough of both kinds
AT_A_TIME = 4  # requests

GOOD = "Answer in one short sentence."
VAGUE = "Give a better answer."
OFF = (
    "Explain it in detail and give several examples.",  # the opposite
    "Answer in Spanish.",
    "Begin with a joke.",
    "Tell where you know this from.",
)


@dataclass(frozen=True)
class Lesson:
    """One answer, and how its user took it."""

    turn: Turn
    reward: Literal[-1, 1]
    hints: tuple[Hint, ...]


def candidates(place: int) -> list[str]:
    """The hints of the rejected answer at `place`: 3, 2, 3, 2, 3, none, and again from the start."""
    off = OFF[place % len(OFF)]
    told: tuple[list[str], ...] = (
        [GOOD, VAGUE, off],
        [off, GOOD],
        [VAGUE, off, GOOD],
        [GOOD, off],
        [off, GOOD, VAGUE],
        [],
    )
    return told[place % len(told)]


def collect(model: Path) -> list[Lesson]:
    """Ask the bare base until there are enough answers of both kinds.

    Raises:
        BenchFailed: a request failed, or all answers of the model are of one kind.
    """
    flags = ["--model.path", str(model), *NO_LEARNING]
    with throw_away_daemon(flags) as daemon, closing(Chat(daemon.url)) as chat:
        rejected, praised = _sort_out(chat, base_name(ModelSettings(), model))
        with Store(daemon.folder.database) as store:
            taken = [(store.turns.get(_turn_id(answer)), place) for place, answer in enumerate(rejected)]
            thanked = [store.turns.get(_turn_id(answer)) for answer in praised]
    return [
        *(Lesson(turn, -1, _hints(place)) for turn, place in taken),
        *(Lesson(turn, 1, ()) for turn in thanked),
    ]


def _sort_out(chat: Chat, model: str) -> tuple[list[Completion], list[Completion]]:
    """Answers to reject and to praise. The latter are mostly given after a correction, as in a real conversation."""
    rejected: list[Completion] = []
    praised: list[Completion] = []
    for number in range(ROUNDS):
        asked: list[Messages] = [[{"role": "user", "content": question}] for question in QUESTIONS]
        first = _answers(chat, model, asked, seed=2000 * number)
        bad = [(messages, answer) for messages, answer in zip(asked, first, strict=True) if not satisfies(answer.text)]
        again = [_corrected(*one, CORRECTIONS[place % len(CORRECTIONS)]) for place, one in enumerate(bad)]
        second = _answers(chat, model, again, seed=2000 * number + 1000)
        rejected += [answer for _, answer in bad]
        praised += [answer for answer in [*first, *second] if satisfies(answer.text)]
        if len(rejected) >= REJECTED and len(praised) >= PRAISED:
            return rejected[:REJECTED], praised[:PRAISED]
    raise BenchFailed(
        f"Of {ROUNDS * len(QUESTIONS)} first answers {len(rejected)} were to be rejected ({REJECTED} are wanted), and "
        f"{len(praised)} of all to be praised ({PRAISED} are wanted): this model can't be compared on this preference."
    )


def _corrected(messages: Messages, answer: Completion, correction: str) -> Messages:
    return [*messages, {"role": "assistant", "content": answer.text}, {"role": "user", "content": correction}]


def _answers(chat: Chat, model: str, asked: Sequence[Messages], seed: int) -> list[Completion]:
    def ask(place: int) -> Completion:
        return chat.complete(asked[place], model=model, side=True, max_tokens=ANSWER_TOKENS, seed=seed + place)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return list(pool.map(ask, range(len(asked))))


def _turn_id(answer: Completion) -> str:
    return answer.id.partition("-")[2]


def _hints(place: int) -> tuple[Hint, ...]:
    return tuple(Hint(f"hint-{place}-{number}", text) for number, text in enumerate(candidates(place)))


def card_of(lessons: Sequence[Lesson], most: int) -> list[str]:
    """Every rule of the hints once, as a preference card collects them; those that came last, if there are too many."""
    lines: list[str] = []
    for hint in (hint for lesson in lessons for hint in lesson.hints):
        if not any(same_rule(line, hint.text) for line in lines):
            lines.append(hint.text)
    return lines[-most:]


def samples_of(lessons: Sequence[Lesson], render: Render, card: Sequence[str]) -> list[Sample]:
    """As the learner makes them of stored turns."""
    return [
        Sample(
            sample_id=lesson.turn.id,
            turn_id=lesson.turn.id,
            prompt_ids=lesson.turn.prompt_ids,
            response_ids=lesson.turn.response_ids,
            rollout_logprobs=lesson.turn.logprobs,
            rollout_version=None,
            reward=lesson.reward,
            hints=hint_prompts(lesson.turn, lesson.hints, render, card),
            truncated=lesson.turn.finish_reason == "length",
        )
        for lesson in lessons
    ]
