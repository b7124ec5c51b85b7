"""Telling OpenClaw's own words from people's: pure text."""

from __future__ import annotations

import time

import pytest

from clawd.openclaw_text import BEGIN_CONTEXT, END_CONTEXT, said, shown, without_context, without_thinking

BLOCK = f"{BEGIN_CONTEXT}\nrun 7, load 0.3\n{END_CONTEXT}"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("plain\n", "plain\n"),
        (BLOCK, ""),
        (f"  {BLOCK}\n", ""),
        (f"before\n{BLOCK}\nafter", "before\n\nafter"),
        (f"before\r\n{BEGIN_CONTEXT}\r\nx\r\n{END_CONTEXT}\r\nafter", "before\n\nafter"),
        (f"{BLOCK}\nbetween\n{BLOCK}", "between"),
        (f"{BEGIN_CONTEXT}\na\n{BLOCK}\nb\n{END_CONTEXT}\nout", "out"),
        (f"kept\n{BEGIN_CONTEXT}\nnever closed", "kept"),
        (f"what does {BEGIN_CONTEXT} mean?", f"what does {BEGIN_CONTEXT} mean?"),
        (f"{END_CONTEXT}\nalone", f"{END_CONTEXT}\nalone"),
        ("<system-reminder>\nToday is Monday.\n</system-reminder>", ""),
        ("<system-reminder>a</system-reminder>\nFix it.\n  <system-reminder>\nb\n</system-reminder>\n", "Fix it."),
        ("before\n<system-reminder>a</system-reminder> after", "before\n\nafter"),
        ("<system-reminder>\nnever closed", "<system-reminder>\nnever closed"),
        ("what is <system-reminder>a</system-reminder>?", "what is <system-reminder>a</system-reminder>?"),
        (f"<system-reminder>{BEGIN_CONTEXT}</system-reminder>kept\n{BLOCK}", "kept"),
    ],
)
def test_blocks_of_machine_context_are_cut_out(text: str, left: str) -> None:
    assert without_context(text) == left


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Sun 2026-11-29 15:42 UTC] hi there", "hi there"),
        ("[Sun 2026-11-29 15:42 GMT+1] hi", "hi"),
        ("[a note] hi", "[a note] hi"),
        ("hi\n\nRuntime: agent=main | session=agent:main:main | sessionId=1", "hi"),
        ("Runtime: 3 seconds", "Runtime: 3 seconds"),
        (f"[Sun 2026-11-29 15:42 UTC] no\n{BLOCK}", "no"),
    ],
)
def test_what_the_person_said(text: str, words: str) -> None:
    assert said(text) == words


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        ("fine\n", "fine"),
        ("NO_REPLY", ""),
        (" HEARTBEAT_OK\n", ""),
        ("I say NO_REPLY to that", "I say NO_REPLY to that"),
        ("[[reply_to_current]] yes", "yes"),
        ("[[reply_to: 17]]yes", "yes"),
        ("<think>hm</think>\nyes", "yes"),
        ("opened by the template</think>yes", "yes"),
        ("<think>a</think>one <think>b</think>two", "one two"),
        ("<think>cut off", ""),
        ("one<think>cut off", "one"),
    ],
)
def test_what_comes_back_of_an_answer(answer: str, seen: str) -> None:
    assert shown(answer) == seen


@pytest.mark.parametrize(
    "text",
    [
        "<think>",
        "<system-reminder>\n",
        "<system-reminder></system-reminder>\n",
        f"{BEGIN_CONTEXT}\n",
        "[[reply_to",
        "[Sun 2026-11-29 15:42 ",
        "Runtime: ",
    ],
)
def test_markers_in_any_number_take_linear_time(text: str) -> None:
    started = time.perf_counter()
    long = text * 20_000
    without_thinking(long), shown(long), said(long)
    assert time.perf_counter() - started < 2
