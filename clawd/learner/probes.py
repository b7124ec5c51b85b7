"""What the gate asks a new version: bundled neutral prompts, and what the adapter's own users have begun with of late.

Neither is trained on. The bundled ones are others than those of the regulariser (`neutral.py`); of a user's messages
those are left out that this update's batch answers, by turn and by wording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clawd.config import GateSettings
from clawd.learner.hints import last_own_message
from clawd.learner.job import Probes
from clawd.learner.judge.reply import text_of
from clawd.openclaw_text import said
from clawd.store import Store
from clawd.store.records import Message, Turn, Update

LONGEST_OWN = 1000  # characters; a pasted page says little and takes long
LOOKED_AT = 64  # recent conversations

PROMPTS = (
    "What is the capital of Japan?",
    "Why does ice float on water?",
    "Write one sentence about a lighthouse.",
    "How do I sort a list of numbers in Python?",
    "What is 23 plus 48?",
    "Translate into German: Thank you very much.",
    "Give me three uses for an old newspaper.",
    "Who painted the Mona Lisa?",
    "What is the opposite of generous?",
    "How do I boil rice?",
    "Explain what an atom is in two sentences.",
    "Write a polite message that declines an invitation.",
    "Which planet is the largest?",
    "What does the command `cd ..` do?",
    "Is a tomato a fruit or a vegetable?",
    "Correct this sentence: She go to school every days.",
    "What causes the tides?",
    "Suggest a title for a talk about bees.",
    "What is half of 90?",
    "What does HTTP stand for?",
    "Describe a rainy street in one sentence.",
    "How can I fall asleep more easily?",
    "Name two countries in Africa.",
    "Put these in order of size: mouse, elephant, dog.",
    "What is the past tense of the verb 'to run'?",
    "Write a line of SQL that counts the rows of a table called users.",
    "What is a mortgage?",
    "Give one argument for and one against school uniforms.",
    "How many sides does a hexagon have?",
    "Summarise in one sentence what a refrigerator does.",
    "What language is spoken in Brazil?",
    "Write a two-line poem about autumn.",
    "What is the boiling point of water at sea level?",
    "How do I undo the last commit in Git?",
    "When did the Second World War end?",
    "Recommend a warm drink without caffeine.",
    "Explain the word 'metaphor' with an example.",
    "What should I check before I buy a used bicycle?",
    "Convert 5 kilometres to metres.",
    "What is the main ingredient of bread?",
)
"""The neutral ones, in the order in which they are taken. Most have short answers: lengths are compared."""

Render = Callable[[list[Message]], list[int]]


def probes(store: Store, update: Update, base_fingerprint: str, settings: GateSettings, render: Render) -> Probes:
    """As token ids. An own message is put alone: with its system prompt and tools it could cost minutes."""
    batch = [store.turns.get(sample.turn_id) for sample in store.signals.of_update(update.id)]
    recent = store.turns.first_of_conversations(update.adapter_id, base_fingerprint, LOOKED_AT)
    own = own_messages(recent, batch, settings.own_answers)
    return Probes(
        neutral=[_ids(render, text) for text in PROMPTS[: settings.answers]], own=[_ids(render, text) for text in own]
    )


def own_messages(recent: Iterable[Turn], batch: Iterable[Turn], most: int) -> list[str]:
    """The users' words of the `recent` turns, newest first, each once, without those of the `batch`."""
    trained_turns, trained_words = set(), set()
    for turn in batch:
        trained_turns.add(turn.id)
        trained_words |= {said(text_of(message.get("content"))) for message in turn.messages}
    found: list[str] = []
    for turn in recent:
        text = _own_words(turn)
        if turn.id in trained_turns or text in trained_words or text in found or not 0 < len(text) <= LONGEST_OWN:
            continue
        found.append(text)
    return found[:most]


def _own_words(turn: Turn) -> str:
    place = last_own_message(turn.messages)
    return "" if place is None else said(text_of(turn.messages[place].get("content"))).strip()


def _ids(render: Render, text: str) -> list[int]:
    return render([{"role": "user", "content": text}])
