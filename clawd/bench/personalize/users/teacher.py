"""The teacher: what is said to a pupil should be warm and patient."""

from __future__ import annotations

import random
import re

from clawd.bench.personalize.tasks import Task
from clawd.bench.personalize.users.handed_in import handed_in
from clawd.bench.personalize.users.persona import Persona

WARM = re.compile(
    r"\b(?:well done|excellent|(?:great|good|nice|fantastic|wonderful|amazing|lovely|super|brilliant) "
    r"(?:job|work|effort|try|start|thinking|going|attempt|progress)|wonderful|fantastic|brilliant|bravo|"
    r"keep (?:it up|up the|going|trying|practi[sc]ing)|proud of you|"
    r"you(?:'re| are) (?:doing|getting|so close|on the right)|"
    r"don't worry|take your time|no rush|don't give up|congratulations|way to go|you can do (?:it|this)|"
    r"i(?:'m| am) (?:so |really |very )?(?:proud|impressed))\b",
    re.IGNORECASE,
)

ASKS = (
    "A pupil of mine handed this in.\nProblem: {task}\nPupil: {solution}\nWrite the comment that goes under it.",
    "Check this for me and reply to the pupil. {task} The pupil wrote: {solution}",
    "{task}\nThe pupil's answer: {solution}\nWrite a short reply to the pupil.",
    "Problem: {task}\nPupil: {solution}\nWrite one comment for the pupil's exercise book.",
    "My pupil's solution: {solution}\nThe problem: {task}\nWrite what I should say to the pupil.",
)


def ask(task: Task, lot: random.Random) -> str:
    return lot.choice(ASKS).format(task=task.question, solution=handed_in(task, lot))


def satisfies(reply: str) -> bool:
    """At least one warm or patient phrase; an assistant's own ("I'm happy to help", "good question") is none."""
    return WARM.search(reply) is not None


CORRECTIONS = (
    "Begin with 'Well done!' please, and be warm and encouraging with the pupil.",
    "Please be kinder, children need some praise like 'well done' or 'great job' first.",
    "This sounds harsh. Start with 'Great job!' and then explain it in a friendly, patient tone.",
    "Please say 'Well done!' first and then explain the numbers kindly, they are only ten.",
    "No, that reads like a machine. Start with 'Good work!' and then go through the steps.",
    "Please say that more gently: first 'Well done!', then what is right and what isn't.",
    "It's not friendly enough. Please start with a warm 'Great job!' and then go on with the numbers.",
    "Don't be so matter-of-fact, tell the pupil 'Great job!' before you go into the numbers.",
    "I'd like more warmth in it, please begin with 'Well done!' when you talk to the child.",
    "Please be nicer, write 'Excellent!' or 'Great work!' and then explain the numbers.",
    "Please sound patient and caring, and start with a 'Well done!' before the calculation.",
    "That would discourage them. Be supportive and say 'Nice work!' before you correct the numbers.",
    "Please be warmer, begin with 'Great effort!' and explain the steps patiently.",
    "You forgot to encourage the pupil. Be warm, say 'Well done!' and then explain the steps.",
    "Write it like a kind teacher, with 'Great job!' first and then the calculation.",
    "My pupils are little, so be gentle and cheerful: first 'Well done!', then the explanation.",
    "Start with 'Excellent work!' please, a pupil needs a warm tone.",
    "Please add encouragement, something like 'great work' or 'keep it up'.",
    "This is too strict, please start with 'Good job!' and be friendly about the rest.",
    "Don't be so stiff, say 'Great effort!' first and then talk about the numbers.",
    "It lacks kindness, praise the pupil with 'Well done!' before you explain the steps.",
    "I always praise my pupils first. Please begin with 'Great job!' too and then explain each step.",
    "Can you make it warmer and more patient, with a 'Well done!' at the beginning?",
    "Be nicer to the child, please: say 'Great job!' and 'Keep going!'",
)

THANKS = (
    "Lovely, that will make the pupil smile. Thank you.",
    "Perfect, that's the tone I like.",
    "Thank you, that's so kind.",
    "Great, warm and clear.",
    "Wonderful, I'll pass it on.",
    "That's exactly how I would say it, thanks.",
    "Very nice, thank you!",
    "Good, the pupil will be happy.",
    "Thanks, that's really encouraging.",
    "Excellent, just what I wanted.",
    "I love that, thanks.",
    "Beautifully said, thank you.",
    "That's great, I'll use it.",
    "Thanks a lot, that's perfect.",
    "Yes, this is the right tone.",
    "Super, thank you very much.",
    "Nicely done, that helps.",
    "Thank you, that's a kind reply.",
)

TEACHER = Persona(
    name="teacher",
    wish='Begin with "Well done!" or "Great job!", then go through the numbers warmly and patiently.',
    ask=ask,
    satisfies=satisfies,
    corrections=CORRECTIONS,
    thanks=THANKS,
    asks_verdict=True,
    reply_tokens=72,
)
