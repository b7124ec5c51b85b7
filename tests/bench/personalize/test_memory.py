"""The memory baseline."""

from __future__ import annotations

from clawd.bench.personalize.memory import MOST_NOTES, Memory


def test_corrections_are_kept_once_and_praise_is_not() -> None:
    memory = Memory()
    assert memory.prompt() == []
    memory.hear("What is 2 + 2?", "**4**", "Please don't use bold text.")
    memory.hear("What is 3 + 3?", "6", "Thanks, perfect.")
    memory.hear("What is 1 + 1?", "**2**", "please don't use bold text!")
    (message,) = memory.prompt()
    assert message["role"] == "system"
    assert message["content"].count("bold") == 1


def test_the_newest_corrections_are_kept() -> None:
    memory = Memory()
    words = ["apples", "pears", "plums", "grapes", "figs", "dates", "limes", "lemons", "kiwis", "melons", "cherries"]
    words += ["peaches", "apricots", "mangos"]
    for word in words:
        memory.hear("Tell me about fruit.", "Fruit is good.", f"Please don't mention {word}.")
    assert len(memory.notes) == MOST_NOTES
    assert words[-1] in memory.notes[-1]
    assert not any(words[0] in note for note in memory.notes)
