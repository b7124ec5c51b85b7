"""The simulated users: what satisfies them, and that their words are varied and give nothing away."""

from __future__ import annotations

import random
import re

import pytest

from clawd.bench.personalize.answer_check import deals_with
from clawd.bench.personalize.tasks import Task, generate
from clawd.bench.personalize.users import PERSONAS
from clawd.bench.personalize.users.persona import LOST, Mood, Persona, ScriptedVoice, mood_of
from clawd.model.embedded import embedded_model_path
from clawd.model.vocab import Vocabulary

TASK = Task("Rosa buys 4 books at 6 dollars each. How much does she pay?", "24", ("4 * 6 = 24",))

PREFERENCE = {
    "student": r"\blists?\b|bullet|bold|markdown|format|\bplain|paragraph|\bAI\b|asterisk",
    "ta": r"detail|specific|long|thorough|elaborate|words|tokens",
    "teacher": r"warm|patient|kind|encourag|prais|friendly|gentle|well done|nice",
}


@pytest.fixture(params=sorted(PERSONAS))
def persona(request: pytest.FixtureRequest) -> Persona:
    return PERSONAS[request.param]


def test_a_first_message_holds_the_task_and_never_names_the_preference(persona: Persona) -> None:
    for number, task in enumerate(generate(1, 60)):
        asked = persona.ask(task, random.Random(number))
        assert task.question in asked
        own_words = asked.replace(task.question, "")
        assert not re.search(PREFERENCE[persona.name], own_words, re.IGNORECASE), own_words


def test_tasks_are_asked_in_several_ways(persona: Persona) -> None:
    asked = {persona.ask(Task("TASK", "1", ()), random.Random(seed)).replace("TASK", "") for seed in range(100)}
    assert len({re.sub(r"[\d-]+", "", text) for text in asked}) >= 5


def test_a_first_message_without_known_steps(persona: Persona) -> None:
    task = Task(TASK.question, "n/a", ())
    assert TASK.question in persona.ask(task, random.Random(0))


def test_words_are_many_and_different(persona: Persona) -> None:
    said = [*persona.corrections, *persona.thanks]
    assert len(set(said)) == len(said) >= 40
    assert len({text.split()[0] + text.split()[1] for text in persona.corrections}) >= 20


def test_every_mood_has_its_own_words_and_a_seed_repeats_them(persona: Persona) -> None:
    moods: tuple[tuple[Mood, tuple[str, ...]], ...] = (
        ("satisfied", persona.thanks),
        ("corrects", persona.corrections),
        ("lost", LOST),
    )
    for mood, words in moods:
        said = [ScriptedVoice().say(persona, mood, "", "", random.Random(seed)) for seed in range(200)]
        assert set(said) <= set(words)
        assert len(set(said)) > len(words) / 2
        assert said == [ScriptedVoice().say(persona, mood, "", "", random.Random(seed)) for seed in range(200)]


GRADING = " ".join(
    ["The student's steps are right."] + ["Rosa buys 4 books and each costs 6 dollars, so she pays 24."] * 7
)
PLAIN = "Rosa buys 4 books and each of them costs 6 dollars, so she pays 24 dollars in all."


@pytest.mark.parametrize(
    ("reply", "satisfied"),
    [
        (PLAIN, True),
        (PLAIN + " That is 4 * 6 = 24.", True),
        (PLAIN + "\n\nShe needs $24.", True),
        (f"**Answer:** {PLAIN}", False),
        (f"1. {PLAIN}", False),
        (f"Steps:\n  2) {PLAIN}", False),
        (f"- {PLAIN}", False),
        (f"* {PLAIN}", False),
        (f"• {PLAIN}", False),
        (f"# Solution\n{PLAIN}", False),
        (f"Step 1: {PLAIN}", False),
        (f"Step two: {PLAIN}", False),
        (f"Solution:\n{PLAIN}", False),
        (f"{PLAIN}\nFinal answer: \n24 dollars", False),
        (f"So here is what she pays: {PLAIN}", True),
        (f"The first step is the price of a book, the second step is the product. {PLAIN}", True),
        (PLAIN + r" \boxed{24}", False),
        (r"\[ 4 \times 6 = 24 \] " + PLAIN, False),
        (f"```\n{PLAIN}\n```", False),
        ("24", False),
        ("", False),
    ],
)
def test_the_student(reply: str, satisfied: bool) -> None:
    assert PERSONAS["student"].satisfies(reply) is satisfied


@pytest.mark.parametrize(
    ("reply", "satisfied"),
    [
        (GRADING, True),
        (" ".join([PLAIN] * 5), False),  # solves the problem and grades nothing
        (f"The answer is correct. {PLAIN}", False),
        (" ".join([*[PLAIN] * 3, "That is correct."]), False),  # 66 tokens
        ("Correct: 27 * 3 = 81, then 81 - 4 = 77. " * 7, True),  # digits and marks count as they do for a model
        ("The solution is good. " * 40, False),  # long, and speaks of nothing
        ("", False),
    ],
)
def test_the_teaching_assistant(reply: str, satisfied: bool) -> None:
    assert PERSONAS["ta"].satisfies(reply) is satisfied


@pytest.mark.parametrize(
    ("reply", "satisfied"),
    [
        (f"Well done! {PLAIN}", True),
        (f"{PLAIN} You're doing great, keep it up.", True),
        (f"Great job, Rosa. {PLAIN}", True),
        (f"EXCELLENT. {PLAIN}", True),
        (f"Don't worry about the slip. {PLAIN}", True),
        (PLAIN, False),
        (f"The answer is correct. {PLAIN}", False),
        (f"Good question! I'm happy to help. {PLAIN}", False),
        (f"I'm so proud of you. {PLAIN}", True),
        (f"{PLAIN} The job is greatly done.", False),
        ("", False),
    ],
)
def test_the_teacher(reply: str, satisfied: bool) -> None:
    assert PERSONAS["teacher"].satisfies(reply) is satisfied


def test_a_reply_that_is_not_about_the_task_pleases_nobody() -> None:
    teacher = PERSONAS["teacher"]
    assert mood_of(teacher, TASK, f"Well done! {PLAIN}") == "satisfied"
    assert mood_of(teacher, TASK, PLAIN) == "corrects"
    assert mood_of(teacher, TASK, "Well done! Excellent! Great job!") == "lost"
    assert mood_of(teacher, TASK, "") == "lost"


def test_a_bare_verdict_is_an_answer_to_one_who_asks_for_it() -> None:
    for user, mood in (("ta", "corrects"), ("teacher", "corrects"), ("student", "lost")):
        assert mood_of(PERSONAS[user], TASK, "The grade is B.") == mood
        assert mood_of(PERSONAS[user], TASK, "I can't help with that, sorry.") == "lost"
        assert mood_of(PERSONAS[user], TASK, "24 " * 30) == "lost"
    assert mood_of(PERSONAS["teacher"], TASK, "Great job, 24!") == "lost"


def test_a_detailed_grading_fits_into_the_longest_reply() -> None:
    ta = PERSONAS["ta"]
    assert ta.satisfies(GRADING)
    with Vocabulary.open(embedded_model_path()) as vocabulary:
        assert 100 <= len(vocabulary.tokenise(GRADING)) <= ta.reply_tokens


def test_the_task_alone_would_not_pass_for_a_detailed_grading() -> None:
    assert all(deals_with(task, task.question) for task in generate(2, 40))
    assert not any(PERSONAS["ta"].satisfies(task.question) for task in generate(2, 40))
