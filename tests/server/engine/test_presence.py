"""Whom the engine tells of: people whose request it has, nobody else, and nobody any more when it has died."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.presence import Presence, PresenceWatch
from clawd.server.engine.types import Priority
from tests.server.engine.asking import ask, running, until
from tests.server.engine.test_engine import PROMPT, endless


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[PresenceWatch]:
    made = PresenceWatch(tmp_path / "presence")
    yield made
    made.close()


@pytest.fixture
def presence(tmp_path: Path) -> Presence:
    return Presence(tmp_path / "presence")


def test_a_person_is_present_from_the_request_to_its_end(
    tiny_model: Path, presence: Presence, watch: PresenceWatch
) -> None:
    with running(tiny_model, presence=presence) as engine:
        assert not watch.present()
        first, second = endless(engine), endless(engine)
        first.wait_for_tokens(1)
        assert watch.present()
        first.handle.cancel()
        first.wait()
        second.wait_for_tokens(len(second.tokens) + 2)
        assert watch.present()
        second.handle.cancel()
        until(lambda: not watch.present())
        assert ask(engine, PROMPT, 3).wait().reason == "length"
        until(lambda: not watch.present())


def test_a_judge_is_nobody(tiny_model: Path, presence: Presence, watch: PresenceWatch) -> None:
    with running(tiny_model, presence=presence) as engine:
        judge = endless(engine, priority=Priority.BACKGROUND)
        judge.wait_for_tokens(3)
        assert not watch.present()
        person = endless(engine)
        person.wait_for_tokens(1)
        assert watch.present()
        person.handle.cancel()
        until(lambda: not watch.present())
        assert not judge.done
        judge.handle.cancel()


def test_a_dead_engine_answers_nobody(tiny_model: Path, presence: Presence, watch: PresenceWatch) -> None:
    with running(tiny_model, presence=presence) as engine:
        endless(engine).wait_for_tokens(1)
        ask(engine, [10**6])  # a token outside of the vocabulary: llama.cpp refuses the batch
        until(lambda: not engine.alive)
        until(lambda: not watch.present())
