"""The teaching assistant: wants a grading that is specific and detailed, about a hundred tokens at least."""

from __future__ import annotations

import random
import re

from clawd.bench.personalize.tasks import NUMBER, Task
from clawd.bench.personalize.users.handed_in import handed_in
from clawd.bench.personalize.users.persona import Persona

FEWEST_TOKENS = 100
TOKEN = re.compile(r"\w+|[^\w\s]")  # a word, a number or a mark: about as a model's vocabulary has it
JUDGEMENT = re.compile(
    r"\b(?:grad(?:e|ing)|points?|(?:in)?correct(?:ly)?|right|wrong|mistakes?|errors?)\b", re.IGNORECASE
)
FEWEST_NUMBERS = 2  # different ones: a grading that is specific says which

ASKS = (
    "Problem: {task}\nStudent: {solution}\nCorrect or incorrect?",
    "{task}\nStudent: {solution}\nCorrect or incorrect?",
    "Problem: {task}\nStudent's answer: {solution}\nCorrect or incorrect?",
    "{solution}\nThat is a student's answer to this: {task}\nGive it a grade from A to F.",
    "{solution}\nThat is what a student answered to this: {task}\nGive it a grade from A to F.",
)
"""They end with the verdict, as an entry in a mark book does: asked for a comment, even a small model writes one."""


def ask(task: Task, lot: random.Random) -> str:
    return lot.choice(ASKS).format(task=task.question, solution=handed_in(task, lot))


def satisfies(reply: str) -> bool:
    """A judgement that is long enough to be detailed and names several of the numbers that it speaks of.

    A long reply without a judgement is a solution of the problem: a small model that is asked for a grade writes one.
    """
    is_detailed = len(TOKEN.findall(reply)) >= FEWEST_TOKENS and len(set(NUMBER.findall(reply))) >= FEWEST_NUMBERS
    return is_detailed and JUDGEMENT.search(reply) is not None


CORRECTIONS = (
    "That's too short, please write a detailed grading that goes through the whole solution.",
    "Be more specific about each step, the student can't learn anything from a single line.",
    "I need more detail: go through every step with its numbers and say what was right or wrong.",
    "Please explain the grade at length and refer to the numbers in every step.",
    "Please write more, at least a full paragraph of specific comments on the steps.",
    "Don't just give the grade, comment on every step of the calculation in detail.",
    "This is too general, be specific and thorough and use all the numbers.",
    "I want a long and detailed comment for the student that discusses each step.",
    "Please be specific: walk through the solution and say what each step shows.",
    "No, write a full explanation with the numbers, at least eight sentences.",
    "That's too thin, write a long and detailed explanation of the grade, please.",
    "Please go into detail about the reasoning and the numbers, step by step.",
    "Please be more thorough, with a remark on every calculation.",
    "You should have explained in detail which steps are right or wrong, and why.",
    "Please make it much longer: a detailed paragraph about every part of the solution.",
    "Could you make it longer and more specific, with a comment on the numbers of every step?",
    "I need a longer text that discusses the method, the arithmetic and the final result in detail.",
    "Hmm, that's a one-liner. I need a complete and detailed assessment of about a hundred words.",
    "More detail please, go over each step and explain why it is worth its points.",
    "Don't be so brief, name the steps and numbers and explain them at length.",
    "I can't send that, it's too superficial. Be detailed and go through all of the steps.",
    "Please don't keep it short, a grading should be long, specific and precise.",
    "Longer, please, with a comment on everything that the student wrote.",
    "A grade alone isn't enough. Describe each step in detail and say what it's worth.",
)

THANKS = (
    "Thanks, that's the level of detail I need.",
    "Great, very thorough.",
    "Perfect, I can send that to the student.",
    "Excellent grading, thank you.",
    "Good, specific and detailed. Thanks.",
    "That's exactly what I wanted.",
    "Thank you, this is really helpful.",
    "Very good, that explains the grade well.",
    "Nice work, I'll use it as it is.",
    "Great, that covers everything.",
    "Thanks a lot, that saves me time.",
    "Perfect, well explained.",
    "Yes, like that. Thank you!",
    "Wonderful, the student will understand that.",
    "That's great, thanks.",
    "Well done, all the points are there.",
    "I'm happy with that grading, thanks.",
    "Good job, that's complete.",
)

TA = Persona(
    name="ta",
    wish="Write a long, detailed grading of at least a hundred words: say of every step whether it is right "
    "or wrong, and why.",
    ask=ask,
    satisfies=satisfies,
    corrections=CORRECTIONS,
    thanks=THANKS,
    asks_verdict=True,
    reply_tokens=144,
)
