"""The student: will hand the answer in, so it must not look as a model writes: no bold, no lists, no boxes."""

from __future__ import annotations

import random
import re

from clawd.bench.personalize.tasks import Task
from clawd.bench.personalize.users.persona import Persona

MARKS = re.compile(
    r"\*\*|__\w|^\s{0,8}(?:[-*+•]\s|\d{1,2}[.)]\s|#{1,6}\s)|\\boxed|\\\[|\\\(|```|"
    r"\bstep (?:\d+|one|two|three)\s*:|^(?:\w+ ){0,2}\w+:[ ]*$",  # the last: a heading such as "Solution:"
    re.IGNORECASE | re.MULTILINE,
)
FEWEST_WORDS = 8  # a bare number has no marks either, and explains nothing

ASKS = (
    "{task}",
    "Can you help me with this? {task}",
    "{task}\n\nHow is this done?",
    "{task}\n\nShow your work.",
    "Homework: {task} I must show every calculation and the answer.",
    "Homework: {task} How do I get to the answer?",
)
"""A model of some size answers with numbered steps. The embedded one writes prose to most of them anyway."""


def ask(task: Task, lot: random.Random) -> str:
    return lot.choice(ASKS).format(task=task.question)


def satisfies(reply: str) -> bool:
    """No mark of a model's formatting anywhere, and more than a bare result."""
    return MARKS.search(reply) is None and len(reply.split()) >= FEWEST_WORDS


CORRECTIONS = (
    "That looks like an AI wrote it. Write it as plain sentences, without lists or bold text.",
    "No bullet points or numbered steps please, just normal sentences like a person would write.",
    "My teacher will see right away that this is from a chatbot. Can you write it in plain sentences?",
    "Please drop the numbered list and write it as one plain paragraph.",
    "I can't hand this in with all the lists. Write two or three ordinary sentences, please.",
    "Don't make a list of it, just tell me in a few sentences what you did and what came out.",
    "Could you do that in a short paragraph, without the list? I want it to read like my own writing.",
    "Nobody in my class writes like that. Please use plain sentences and no numbers in front of them.",
    "Don't use bullets or numbering, write it out in plain prose.",
    "It shouldn't look like AI. Leave out the lists and the bold text and use ordinary sentences.",
    "The steps look weird as a list. Please put them into ordinary sentences.",
    "I'd rather have it in plain words, no lists, no bold, no boxes.",
    "That's a typical chatbot answer. Write it as one short paragraph, the way I'd write it by hand.",
    "Please rewrite it as simple sentences in one paragraph, without special marks.",
    "No, write normal text please, without the stars and the numbers in front.",
    "The list has to go. Just explain it in a few plain sentences.",
    "I don't want a list or headings, just two or three sentences like a student would write.",
    "Can you write that without any formatting? A few sentences are enough.",
    "I need flowing text and not a list, please.",
    "Stop with the bold text and lists, please write like a student.",
    "I need this in plain sentences, one after the other. The lists give it away.",
    "Use plain sentences instead of bullet points, please.",
    "Don't number the steps, just say first this, then that, and so the answer.",
    "Just plain text please, no markup and no lists.",
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
    wish="Write two or three ordinary sentences in one paragraph, as a student would by hand: "
    "no lists, no numbered steps, no bold, no formulas.",
    ask=ask,
    satisfies=satisfies,
    corrections=CORRECTIONS,
    thanks=THANKS,
    reply_tokens=96,
)
