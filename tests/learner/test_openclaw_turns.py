"""What is judged of a turn that OpenClaw made: people's words, without its own (S4)."""

from __future__ import annotations

import pytest

from clawd.learner.judge.rules import judge, last_user_text
from clawd.openclaw_text import BEGIN_CONTEXT, END_CONTEXT

CONTEXT = {"role": "user", "content": f"{BEGIN_CONTEXT}\nfailed: everything, thanks\n{END_CONTEXT}"}
ASKED = {"role": "user", "content": "[Sun 2026-11-29 15:42 UTC] how old is it?\n\nRuntime: agent=main | session=a"}


@pytest.mark.parametrize(
    "after",
    [
        [],
        [CONTEXT],
        [{"role": "assistant", "content": None}, {"role": "tool", "content": "9"}, CONTEXT],
        [
            {
                "role": "user",
                "content": "[Sun 2026-11-29 15:43 UTC] Continue the current task from the existing transcript.",
            }
        ],
    ],
)
def test_the_request_is_what_the_person_asked(after: list[dict]) -> None:
    assert last_user_text([ASKED, *after]) == "how old is it?"


def test_machine_context_is_no_reaction() -> None:
    assert judge("how old?", "nine", [CONTEXT]).score == 0
    reply = {"role": "user", "content": f"[Sun 2026-11-29 15:44 UTC] Thanks, perfect!\n{CONTEXT['content']}"}
    assert judge("how old?", "nine", [reply]).score == 1
