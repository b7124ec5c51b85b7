"""The plain memory."""

from __future__ import annotations

from clawd.bench.personalize.memory import MOST_NOTES, Messages, Notes


def conversation(*said: str) -> Messages:
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)]


def test_corrections_are_kept_once_and_praise_is_not() -> None:
    notes = Notes()
    assert notes.prompt("What is 2 + 2?") == []
    notes.hear(conversation("What is 2 + 2?", "**4**", "Please don't use bold text.", "4", "Thanks, perfect."))
    notes.hear(conversation("What is 1 + 1?", "**2**", "please don't use bold text!"))
    (message,) = notes.prompt("What is 3 + 3?")
    assert message["role"] == "system"
    assert message["content"].count("bold") == 1
    assert "perfect" not in message["content"]


def test_every_reaction_of_a_conversation_is_read() -> None:
    notes = Notes()
    notes.hear(conversation("Two?", "**2**", "Please don't use bold text.", "- 2", "Please don't use lists."))
    assert len(notes.notes) == 2


def test_the_newest_corrections_are_kept() -> None:
    notes = Notes()
    words = ["apples", "pears", "plums", "grapes", "figs", "dates", "limes", "lemons", "kiwis", "melons", "cherries"]
    words += ["peaches", "apricots", "mangos"]
    for word in words:
        notes.hear(conversation("Tell me about fruit.", "Fruit is good.", f"Please don't mention {word}."))
    assert len(notes.notes) == MOST_NOTES
    assert words[-1] in notes.notes[-1]
    assert not any(words[0] in note for note in notes.notes)
