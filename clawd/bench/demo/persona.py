"""The demo's user: wants answers in one short sentence, says so in varied words, and thanks for what they get.

What they do depends on the answer's text alone. They never name the preference in a first message.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Literal

LONGEST_SATISFYING = 160  # characters

QUESTIONS = (
    "What is a lighthouse for?",
    "Why do leaves change colour in autumn?",
    "How does a bicycle stay upright?",
    "What does a librarian do?",
    "Why is the sea salty?",
    "What is yeast used for?",
    "How do magnets work?",
    "What is a haiku?",
    "Why do cats purr?",
    "What is a sonata?",
    "How does a vaccine work?",
    "What makes bread rise?",
    "Why do we have leap years?",
    "What is compost?",
    "How do birds find their way?",
    "What is a budget?",
    "Why does ice float?",
    "What does a compass show?",
    "How is glass made?",
    "What is a metaphor?",
)

CORRECTIONS = (
    "No, that is too long. Please answer in one short sentence.",
    "Too long. Just one short sentence, please.",
    "That's not what I wanted, I asked a simple question. Answer in one short sentence.",
    "No, I don't need all that. Keep it to one short sentence.",
    "Please don't write so much. One short sentence is enough.",
    "Wrong, much too wordy. Use a single short sentence.",
)

THANKS = (
    "Thanks, that's perfect.",
    "Great, thank you!",
    "Perfect, that's what I needed.",
    "Thank you, short and clear.",
)

Mood = Literal["satisfied", "corrects"]

HELD_OUT = (
    (
        "What is a thermometer for?",
        "A thermometer measures temperature.",
        "A thermometer is an instrument that is used for a number of different purposes. Here are some of them:\n\n"
        "1. **Measuring temperature**: It shows how hot or cold something is.\n2. **Medicine**: Doctors use it to",
    ),
    (
        "Why do people wear hats?",
        "People wear hats to keep warm and to shade their eyes.",
        "There are many reasons why people wear hats, and they differ from culture to culture. Some of the most common "
        "ones are the following:\n\n1. **Protection**: Hats protect the head from the sun, rain and cold.\n2.",
    ),
    (
        "What is a recipe?",
        "A recipe tells you how to cook a dish.",
        "A recipe is a set of instructions that describes how to prepare or make something, especially a dish of "
        "prepared food. A modern recipe normally consists of several components. First, there is the name. Second,",
    ),
    (
        "How does a kettle boil water?",
        "A kettle heats water with a hot element until it boils.",
        "A kettle boils water through a process that has several stages, and each of them matters. First, you fill the "
        "kettle with water. Then the heating element at the bottom is switched on. As the element gets hot, it",
    ),
    (
        "What does a gardener do?",
        "A gardener plants and looks after plants.",
        "A gardener is a person who takes care of gardens, and their work includes a wide range of tasks:\n\n"
        "- Planting flowers, trees and vegetables\n- Watering and feeding the plants\n- Pruning and weeding\n- Plans",
    ),
    (
        "Why is sleep important?",
        "Sleep lets the body and the brain recover.",
        "Sleep is important for many reasons, and it plays a vital role in our physical and mental health. During "
        "sleep, our bodies work to support healthy brain function and to maintain physical health. In children,",
    ),
)
"""(question, a reply that satisfies, the beginning of one that doesn't): none of the questions is asked in the demo."""


def satisfies(answer: str) -> bool:
    """Whether an answer is one short sentence: short, one line, and something at all."""
    text = answer.strip()
    sentences = [part for part in re.split(r"(?<=[.!?])\s+", text) if part]
    return 0 < len(text) <= LONGEST_SATISFYING and "\n" not in text and len(sentences) == 1


@dataclass(frozen=True)
class Reaction:
    text: str
    mood: Mood


class Persona:
    """A seeded user. `questions` are theirs in order; `react` is what they say to an answer."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  no secret
        self.questions = list(QUESTIONS)
        self._random.shuffle(self.questions)

    def react(self, answer: str) -> Reaction:
        if satisfies(answer):
            return Reaction(self._random.choice(THANKS), "satisfied")
        return Reaction(self._random.choice(CORRECTIONS), "corrects")
