"""Time limits: by their arithmetic, and as the engine keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.config import ModelSettings, ServerSettings
from clawd.errors import TookTooLong
from clawd.server.engine.deadlines import LOOK_EVERY_S, Deadlines
from clawd.server.engine.types import Priority, SamplingParams
from tests.server.engine.asking import Answer, ask, ids, running, until

PROMPT = [1, 50, 60, 70]
LONG = ModelSettings(context=32768, kv_cells=32768)


def endless(engine: object, **fields: object) -> Answer:
    return ask(engine, PROMPT, 32_000, sampling=SamplingParams(seed=5), **fields)  # type: ignore[arg-type]


def test_who_waits_too_long_is_late_and_who_has_begun_is_not() -> None:
    deadlines = Deadlines(wait_s=10, request_s=None)
    for key in ("waits", "runs", "judge"):
        deadlines.add(key, 100, may_wait=key == "judge")
    begun = {"runs"}.__contains__
    assert deadlines.passed(109.9, begun) == []
    assert deadlines.passed(110.5, begun) == ["waits"]
    deadlines.drop("waits")
    assert deadlines.passed(10_000, begun) == []


def test_all_are_late_after_the_time_of_a_request_and_nobody_without_limits() -> None:
    deadlines, unlimited = Deadlines(None, 10), Deadlines(None, None)
    for each in (deadlines, unlimited):
        each.add("waits", 100, may_wait=False)
        each.add("judge", 105, may_wait=True)
    assert deadlines.passed(111, lambda _: True) == ["waits"]
    assert deadlines.passed(115, lambda _: False) == ["waits", "judge"]
    assert unlimited.passed(1e9, lambda _: False) == []


def test_it_looks_only_now_and_then() -> None:
    deadlines = Deadlines(1, None)
    deadlines.passed(100, lambda _: False)
    deadlines.add("a", 0, may_wait=False)
    assert deadlines.passed(100 + LOOK_EVERY_S / 2, lambda _: False) == []
    assert deadlines.passed(100 + LOOK_EVERY_S, lambda _: False) == ["a"]


def test_a_request_that_waits_too_long_is_told_so_and_the_running_one_goes_on(tiny_model: Path) -> None:
    with running(tiny_model, model=LONG, max_running=1, max_wait_s=0.1) as engine:
        first = endless(engine)
        judge = ask(engine, PROMPT, 3, priority=Priority.BACKGROUND)
        late = ask(engine, PROMPT, 3).wait()
        assert (late.reason, late.response_tokens) == ("error", 0)
        assert isinstance(late.cause, TookTooLong)
        assert "max_wait_s" in str(late.cause)
        told = len(first.tokens)
        first.wait_for_tokens(told + 1)
        assert not first.done and not judge.done
        first.handle.cancel()
        assert judge.wait().reason == "length", "what runs in the background may wait"


def test_an_answer_that_takes_too_long_ends_as_if_cut_by_its_length(tiny_model: Path) -> None:
    with running(tiny_model, model=LONG, max_request_s=0.2) as engine:
        answer = endless(engine)
        assert answer.wait().reason == "length"
        assert 0 < len(answer.ids) < 32_000
        assert ids(engine, PROMPT, 3)
        until(lambda: engine.stats().running == 0)


def test_a_prompt_that_takes_too_long_is_an_error_and_what_was_read_is_remembered(tiny_model: Path) -> None:
    with running(tiny_model, model=LONG, max_request_s=0.01, prompt_chunk=16, prompt_chunk_shared=16) as engine:
        prompt = [3 + i % 200 for i in range(32_000)]
        late = ask(engine, prompt, 3).wait()
        assert isinstance(late.cause, TookTooLong)
        assert ask(engine, prompt[:17], 1).wait().cached_tokens == 16


@pytest.mark.parametrize("waits", [True, False])
def test_by_default_an_answer_may_take_as_long_as_it_needs(waits: bool) -> None:
    server = ServerSettings()
    deadlines = Deadlines(server.max_wait_s, server.max_request_s)
    deadlines.add("a", 0, may_wait=waits)
    assert deadlines.passed(1e9, lambda _: True) == []
