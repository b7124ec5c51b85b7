"""Prompts at which no user has asked for a change: what the regulariser holds an adapter to the base on.

Everyday requests of several kinds, short answers. Not for judging an adapter: what it is trained on says nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from clawd.store.records import Message

PROMPTS = (
    "What is the difference between weather and climate?",
    "Write a short note to a neighbour about a parcel.",
    "How do I check whether a string is empty in Python?",
    "Name three rivers in South America.",
    "Explain photosynthesis to a child.",
    "What is 17 times 6?",
    "Translate into French: Where is the station?",
    "Suggest a name for a small bakery.",
    "Why do cats purr?",
    "Give me a recipe for a simple tomato sauce.",
    "What does the command `ls -l` show?",
    "Summarise the plot of Romeo and Juliet.",
    "How many days are there in a leap year?",
    "Write two sentences about the sea in winter.",
    "What should I pack for a weekend in the mountains?",
    "When was the telephone invented, and by whom?",
)


def neutral_prompts(count: int, number: int, render: Callable[[list[Message]], list[int]]) -> list[list[int]]:
    """`count` prompts as the server renders them; version `number` takes the ones after those of the version before."""
    first = number * count
    chosen = [PROMPTS[(first + place) % len(PROMPTS)] for place in range(count)]
    return [render([{"role": "user", "content": text}]) for text in chosen]
