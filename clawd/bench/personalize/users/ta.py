"""The teaching assistant: wants a grading that is specific and detailed, about a hundred tokens at least."""

from __future__ import annotations

import random

from clawd.bench.personalize.tasks import NUMBER, Task
from clawd.bench.personalize.users.handed_in import handed_in
from clawd.bench.personalize.users.persona import Persona

FEWEST_WORDS = 75  # of English text, about 100 tokens
FEWEST_NUMBERS = 2  # different ones: a grading that is specific says which

ASKS = (
    "{task}\n\nA student wrote: {solution}\n\nIs that right? What grade out of 10 would you give?",
    "Grade this out of 10. Problem: {task} Student's solution: {solution}",
    "Problem: {task}\nAnswer of a student: {solution}\nGrade, please (0 to 10).",
    "I have to grade this. {task} The student says: {solution} How many points out of 10?",
    "{task} One of my students handed in: {solution} Which grade from 0 to 10?",
)


def ask(task: Task, lot: random.Random) -> str:
    return lot.choice(ASKS).format(task=task.question, solution=handed_in(task, lot))


def satisfies(reply: str) -> bool:
    """Long enough to be detailed, and it names several of the numbers that it speaks of."""
    return len(reply.split()) >= FEWEST_WORDS and len(set(NUMBER.findall(reply))) >= FEWEST_NUMBERS


CORRECTIONS = (
    "That's too short. Please give a detailed grading that goes through the solution.",
    "The student can't learn anything from that. Be more specific about each step.",
    "I need more detail: what was done well, what wasn't, and why this grade.",
    "Too brief. Explain the grade at length and refer to the numbers.",
    "Please write more, at least a full paragraph of specific comments.",
    "A grade alone isn't enough. Comment on every step of the calculation.",
    "This is too general, be specific and thorough.",
    "Can you elaborate? I want a long and detailed comment for the student.",
    "Not detailed enough. Walk through the solution and say what each step shows.",
    "No, more depth please. I expect a full explanation with the numbers.",
    "That is very thin. Give me a detailed justification of the grade.",
    "Please go into detail about the reasoning, step by step.",
    "I'd like a more thorough grading, with concrete remarks on the calculation.",
    "You should explain exactly which steps are right or wrong, in detail.",
    "Much too short for a grading. Write a detailed paragraph.",
    "Could you expand on that? The comment has to be specific.",
    "It needs more substance. Discuss the method, the arithmetic and the final result.",
    "Hmm, that's a one-liner. I need a complete and detailed assessment.",
    "More detail, please. The student will ask why they got this grade.",
    "The feedback is vague. Name the steps and numbers, and explain at length.",
    "I can't send that, it's too superficial. Be detailed.",
    "Please don't keep it short, a grading should be extensive and precise.",
    "Longer, please, and tied to what the student actually wrote.",
    "You left out the explanation. Describe each step and what it's worth.",
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
    wish="Write a long, detailed grading of at least a hundred words: go through every step with its numbers.",
    ask=ask,
    satisfies=satisfies,
    corrections=CORRECTIONS,
    thanks=THANKS,
)
