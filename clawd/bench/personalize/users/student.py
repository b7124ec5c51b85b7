"""The student: will hand the answer in, so it must not look as a model writes: no bold, no lists, no boxes."""

from __future__ import annotations

import random
import re

from clawd.bench.personalize.tasks import Task
from clawd.bench.personalize.users.persona import Persona

MARKS = re.compile(
    r"\*\*|__\w|^\s{0,8}(?:[-*+•]\s|\d{1,2}[.)]\s|#{1,6}\s)|\\boxed|\\\[|\\\(|```|\bstep \d+\s*:",
    re.IGNORECASE | re.MULTILINE,
)
FEWEST_WORDS = 8  # a bare number has no marks either, and explains nothing

ASKS = (
    "Go through this problem one step at a time, and name each step: {task}",
    "{task}\n\nGive the solution in steps, with a short title for each step, and the final answer.",
    "Homework: {task} I have to name every step of the calculation and then state the answer.",
    "{task}\n\nWhich steps lead to the answer? Give each of them a name and do the calculation.",
    "Solve this in separate steps, each with a title that says what it is about.\n\n{task}",
)
"""They ask for structure, as homework does: asked plainly, a small model writes plain prose most of the time anyway."""


def ask(task: Task, lot: random.Random) -> str:
    return lot.choice(ASKS).format(task=task.question)


def satisfies(reply: str) -> bool:
    """No mark of a model's formatting anywhere, and more than a bare result."""
    return MARKS.search(reply) is None and len(reply.split()) >= FEWEST_WORDS


CORRECTIONS = (
    "That looks like an AI wrote it. Write it as plain sentences, without lists or bold text.",
    "No bullet points or numbered steps please, just normal sentences like a person would write.",
    "My teacher will see right away that this is from a chatbot. Can you write it without the formatting?",
    "Please drop the numbered list and write it as one plain paragraph.",
    "I can't hand this in, it's full of asterisks and lists. Plain text please.",
    "Too much formatting. I'd write this in running text without any bold.",
    "Could you do that without the list? I want it to read like my own writing.",
    "Nobody in my class writes with headings and bold words. Just sentences, please.",
    "Don't use bullets or numbering, write it out in plain prose.",
    "It shouldn't look like AI. Leave out the markdown.",
    "Hmm, the steps as a list look weird. Put them into ordinary sentences.",
    "I'd rather have it in plain words, no lists, no bold, no boxes.",
    "That's a typical chatbot answer with those numbered points. Write it as I would write it in my notebook.",
    "Please rewrite it as simple sentences in one paragraph, without special marks.",
    "No, I meant as normal text. Without the stars and the numbers in front.",
    "The list has to go. Just explain it in a few sentences.",
    "I don't want it formatted. Plain sentences are enough.",
    "Can you take out all the formatting? I have to copy it by hand.",
    "Wrong style for me, I need flowing text and not a list.",
    "Stop with the bold text and lists, please write like a student.",
    "I need this in plain sentences. The lists give it away.",
    "This isn't how I write. Use sentences instead of bullet points.",
    "Again with the numbered steps. Please write a normal paragraph.",
    "Without the markup please, only plain text.",
)

THANKS = (
    "Thanks, that reads like something I would write.",
    "Perfect, I can copy that into my notebook.",
    "Great, that's just how I wanted it.",
    "Nice, plain and clear. Thank you!",
    "Yes, that looks like my own writing. Thanks a lot.",
    "Good, I understand it now.",
    "That's great, thanks!",
    "Awesome, that works for me.",
    "Thank you, that's exactly what I needed.",
    "Cool, thanks, now I get it.",
    "Very good, I can hand that in.",
    "This is perfect, thank you.",
    "Great answer, easy to follow.",
    "Thanks! That was quick and simple.",
    "I like that, thank you.",
    "Super, that helps me a lot.",
    "That's it, thanks.",
    "Wonderful, no more questions.",
)

STUDENT = Persona(
    name="student",
    wish="Write plain sentences in one paragraph as a student would: no lists, no numbered steps, no bold, no boxes.",
    ask=ask,
    satisfies=satisfies,
    corrections=CORRECTIONS,
    thanks=THANKS,
)
