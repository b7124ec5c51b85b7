"""A person doesn't wait for the end of a step that only the judge needs, and the judge loses nothing by it."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from clawd.server.engine.engine import Engine
from clawd.server.engine.types import Priority
from tests.server.engine.asking import COMPARED, Answer, ask, assert_same, running, until

PERSON = [504, 338, 260, 3575]


def judge_prompt() -> list[int]:
    return np.random.default_rng(1).integers(100, 40_000, 400).tolist()


def judge(engine: Engine) -> Answer:
    return ask(engine, judge_prompt(), 4, sampling=COMPARED, priority=Priority.BACKGROUND)


def test_a_long_step_of_the_background_is_given_up_for_a_person(
    embedded_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(embedded_model, prompt_chunk_shared=400) as engine:  # the whole prompt is one step
        background = judge(engine)
        until(lambda: engine.stats().running == 1)
        persons = 0
        while engine.stats().broken_off == 0:
            assert not background.done
            assert ask(engine, PERSON, 2).wait().reason in ("stop", "length")
            persons += 1
            until(lambda: engine.stats().paused == 0)
        assert persons > 0
        assert background.wait().prompt_tokens == 400
        assert "failed" not in caplog.text, "that is no error"
    with running(embedded_model, prompt_chunk_shared=400) as undisturbed:
        ask(undisturbed, PERSON, 2).wait()  # takes the same cells as before, which moves the last digits
        expected = judge(undisturbed)
        expected.wait()
    assert_same(background, expected, tolerance=1e-6)


def test_what_comes_in_the_background_breaks_nothing_off(embedded_model: Path) -> None:
    with running(embedded_model, prompt_chunk_shared=200) as engine:
        first = judge(engine)
        until(lambda: engine.stats().running == 1)
        later = [ask(engine, PERSON, 1, priority=Priority.BACKGROUND) for _ in range(3)]
        for answer in (first, *later):
            answer.wait()
        assert engine.stats().broken_off == 0


def test_a_persons_step_is_not_broken_off_by_another_person(tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with running(tiny_model) as engine:
        answers = [ask(engine, [1, 2, 3 + index], 60) for index in range(60)]
        assert {answer.wait().reason for answer in answers} <= {"stop", "length"}
        assert engine.stats().broken_off == 0
