"""The `@anthropic-ai/sdk` package on a real server: streams, tool calls, going away (E2), errors, counts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.node.cases import run_case
from tests.node.test_openai_js import CITIES, TWO_CALLS, Run, ids_of_all, key, scripted
from tests.server.scripted import ScriptedLive
from tests.tiny_daemon import wait_for

__all__ = ["key", "scripted"]

pytestmark = pytest.mark.node


@pytest.fixture
def run(scripted: ScriptedLive, key: str, tmp_path: Path) -> Run:
    return partial(run_case, "anthropic_client.mjs", scripted.live.url, key, tmp_path)


def test_a_stream(scripted: ScriptedLive, run: Run) -> None:
    scripted.engine.say("It rains in Oslo – as ever ☔.")
    seen = run("streams")
    assert seen["text"] == "It rains in Oslo – as ever ☔."
    assert seen["pieces"] > 5
    assert scripted.live.turn(seen["id"]).response_text == seen["text"]


@pytest.mark.parametrize("case", ["streams_calls", "streams_calls_eagerly"])
def test_tool_calls_in_a_stream(scripted: ScriptedLive, run: Run, case: str) -> None:
    scripted.engine.say(TWO_CALLS)
    assert run(case) == CITIES


def test_tool_results_go_on_with_the_turn(scripted: ScriptedLive, run: Run) -> None:
    scripted.engine.say(TWO_CALLS, "It rains in both.")
    seen = run("whole")
    assert (seen["calls"], seen["stop_reason"], seen["final"]) == (CITIES, "tool_use", "It rains in both.")
    next_state = scripted.live.turn(seen["id"]).next_state or []
    assert [(message["role"], message["content"]) for message in next_state] == [
        ("tool", "rain in Oslo"),
        ("tool", "rain in Rome"),
    ]


def test_who_goes_away_leaves_the_engine_idle_and_an_aborted_turn(scripted: ScriptedLive, run: Run) -> None:
    before = set(ids_of_all(scripted))
    seen = run("aborts")
    assert (seen["kind"], seen["seen"]) == ("APIUserAbortError", 4)
    assert scripted.live.wait_until_idle(within_s=10)
    (turn_id,) = set(ids_of_all(scripted)) - before
    wait_for(lambda: scripted.live.store.turns.get(turn_id).finished_at is not None, "the turn is stored")
    turn = scripted.live.store.turns.get(turn_id)
    assert (turn.state, turn.reason, turn.finish_reason) == ("discarded", "aborted", "cancelled")


def test_errors_have_the_classes_and_types_that_the_client_knows(run: Run) -> None:
    errors = run("errors")
    assert {name: (error["kind"], error["status"], error["type"]) for name, error in errors.items()} == {
        "unknown_model": ("NotFoundError", 404, "not_found_error"),
        "no_messages": ("BadRequestError", 400, "invalid_request_error"),
        "too_long": ("BadRequestError", 400, "invalid_request_error"),
        "wrong_key": ("AuthenticationError", 401, "authentication_error"),
    }


def test_tokens_are_counted(run: Run) -> None:
    assert run("counts") > 10
