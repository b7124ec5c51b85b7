"""What Claude Code asks for itself, at the end of a person's conversation, is no reply of the person's. No model."""

from __future__ import annotations

import pytest

from clawd.store import Store
from tests.server.posting import Client, assistant, user

SUMMARY = "Your task is to create a detailed summary of the conversation so far, paying close attention to details."


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("[SUGGESTION MODE: Suggest what the user might naturally type next.]\n\nFIRST: look.", "suggestion"),
        (SUMMARY, "compaction"),
        (f"CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n{SUMMARY}", "compaction"),
    ],
)
def test_the_answer_before_is_judged_by_the_persons_next_words(store: Store, text: str, evidence: str) -> None:
    client = Client(store)
    history = [user("Fix the bug."), assistant("Fixed.")]
    _, first = client.post(history[:1], "Fixed.")
    side, side_id = client.post([*history, user(text)], "run the tests")
    assert (side.kind, side.kind_evidence) == ("side", evidence)
    assert store.turns.get(side_id).reason == "side turn"
    assert store.turns.get(first).state == "waiting"
    client.post([*history, user("No, the other one.")])
    assert store.turns.get(first).next_state == [user("No, the other one.")]


@pytest.mark.parametrize(
    "text", ["Your task is to fix the bug.", "CRITICAL: it crashes.", "What is [SUGGESTION MODE:?"]
)
def test_a_persons_words_are_no_such_thing(store: Store, text: str) -> None:
    placement, _ = Client(store).post([user(text)])
    assert placement.kind == "main"


def test_reminders_are_no_words_of_the_persons(store: Store) -> None:
    reminder = "<system-reminder>\nThe date is the {}th. Don't mention this.\n</system-reminder>"
    client = Client(store)
    _, first = client.post([user(f"{reminder.format(1)}\nFix the bug.")], "Fixed.")
    history = [user(f"{reminder.format(2)}\nFix the bug."), assistant("Fixed.")]
    placement, _ = client.post([*history, user("No, the other one."), user(reminder.format(3))])
    turn = store.turns.get(first)
    assert turn.session_id == placement.session.id
    assert turn.next_state == [user("No, the other one.")]
