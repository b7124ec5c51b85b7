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
    "{task}\n\nMy pupil's answer: {solution}\n\nWhat should I write back?",
    "Check this for me and reply to the pupil. {task} The pupil wrote: {solution}",
    "Problem: {task} A pupil's solution: {solution} Tell the pupil whether it is right and why.",
    "Please answer this pupil. The problem was: {task} The pupil wrote: {solution}",
)


def ask(task: Task, lot: random.Random) -> str:
    return lot.choice(ASKS).format(task=task.question, solution=handed_in(task, lot))


def satisfies(reply: str) -> bool:
    """At least one warm or patient phrase; an assistant's own ("I'm happy to help", "good question") is none."""
    return WARM.search(reply) is not None


CORRECTIONS = (
    "That's too cold. Be warm and encouraging with the pupil.",
    "Please be kinder, children need some praise like 'well done'.",
    "This sounds harsh. Write it in a friendly, patient tone.",
    "A bit dry for a ten-year-old. Add some warm words and encouragement.",
    "No, that reads like a machine. Start by praising the effort.",
    "Could you say that more gently? I want my pupils to feel encouraged.",
    "It's correct but not friendly. Please use warm phrases.",
    "Too matter-of-fact. Tell the pupil what a great job they did.",
    "I'd like more warmth in it, please encourage the child.",
    "Where is the praise? A pupil should hear that the effort was excellent.",
    "Please sound patient and caring, not like a calculator.",
    "That would discourage them. Be supportive and say something nice first.",
    "Hmm, more heart please. Pupils should feel good when they read it.",
    "You forgot to encourage the pupil. Be warm.",
    "Write it as a kind teacher would, with some praise.",
    "My pupils are little, so be gentle and cheerful.",
    "The tone is wrong, it has to be warm and patient.",
    "Please add encouragement, something like great work or keep it up.",
    "This is too strict. I want them to enjoy maths, so be friendly.",
    "Not so stiff, please. Say how good the effort was.",
    "It lacks kindness. Praise the pupil before you explain.",
    "I always praise my pupils first. Please do that too.",
    "Can you make it sound warmer and more patient?",
    "Be nicer to the child, they tried hard.",
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
    wish="Be warm and patient with the pupil: praise the effort, with words such as well done, great job or excellent.",
    ask=ask,
    satisfies=satisfies,
    corrections=CORRECTIONS,
    thanks=THANKS,
)
