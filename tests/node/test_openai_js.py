"""The `openai` package for JavaScript on a real server: streams, tool calls, going away (E2), errors. Cases E4 and E5.

What is asserted about the client's view stands in openai_client.mjs; here, what the server made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.node.cases import run_case
from tests.server.scripted import ScriptedLive, scripted_server
from tests.tiny_daemon import wait_for

pytestmark = pytest.mark.node

TWO_CALLS = (
    "I look it up.\n"
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
)
Run = Callable[[str], Any]
CITIES = [{"city": "Oslo"}, {"city": "Rome"}]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedLive]:
    with scripted_server(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="module")
def key(scripted: ScriptedLive) -> str:
    return scripted.live.store.people.add("ann")[1]


@pytest.fixture
def run(scripted: ScriptedLive, key: str, tmp_path: Path) -> Run:
    return partial(run_case, "openai_client.mjs", scripted.live.url, key, tmp_path)


def test_a_stream(scripted: ScriptedLive, run: Run) -> None:
    scripted.engine.say("It rains in Oslo – as ever ☔.")
    seen = run("streams")
    assert seen["text"] == "It rains in Oslo – as ever ☔."
    assert seen["chunks"] > 5
    assert scripted.live.turn(seen["id"]).response_text == seen["text"]


def test_tool_calls_whole_and_as_deltas(scripted: ScriptedLive, run: Run) -> None:
    scripted.engine.say(TWO_CALLS)
    assert run("streams_calls") == CITIES
    scripted.engine.say(TWO_CALLS)
    whole = run("whole")
    assert whole == {"content": "I look it up.", "calls": CITIES, "finish_reason": "tool_calls"}


def test_the_packages_own_tool_loop_is_one_session(scripted: ScriptedLive, run: Run) -> None:
    before = set(ids_of_all(scripted))
    scripted.engine.say(TWO_CALLS, "It rains in both.")
    assert run("runs_tools") == {"final": "It rains in both.", "asked": ["Oslo", "Rome"]}
    first, second = (scripted.live.store.turns.get(turn) for turn in sorted(set(ids_of_all(scripted)) - before))
    assert first.session_id == second.session_id
    assert [message["content"] for message in first.next_state or []] == ["rain in Oslo", "rain in Rome"]


def ids_of_all(scripted: ScriptedLive) -> list[str]:
    store = scripted.live.store
    return [turn for session in store.sessions.all() for turn in store.turns.ids_of_session(session.id)]


def test_who_goes_away_leaves_the_engine_idle_and_an_aborted_turn(scripted: ScriptedLive, run: Run) -> None:
    seen = run("aborts")
    assert seen["seen"] >= 4
    assert scripted.live.wait_until_idle(within_s=10)
    turn_id = seen["id"].removeprefix("chatcmpl-")
    wait_for(lambda: scripted.live.store.turns.get(turn_id).finished_at is not None, "the turn is stored")
    turn = scripted.live.store.turns.get(turn_id)
    assert (turn.state, turn.reason, turn.finish_reason) == ("discarded", "aborted", "cancelled")
    assert 0 < len(turn.response_ids) == len(turn.logprobs) < 4000


def test_so_does_who_goes_away_before_a_whole_answer(scripted: ScriptedLive, run: Run) -> None:
    before = set(ids_of_all(scripted))
    assert run("aborts_a_whole_answer")["kind"] == "APIUserAbortError"
    assert scripted.live.wait_until_idle(within_s=10)
    (turn_id,) = set(ids_of_all(scripted)) - before
    wait_for(lambda: scripted.live.store.turns.get(turn_id).finished_at is not None, "the turn is stored")
    assert scripted.live.store.turns.get(turn_id).reason == "aborted"


def test_errors_have_the_classes_and_codes_that_the_client_knows(scripted: ScriptedLive, run: Run) -> None:
    errors = run("errors")
    told = {name: (error["kind"], error["status"], error["code"]) for name, error in errors.items()}
    assert told["unknown_model"] == ("NotFoundError", 404, "model_not_found")
    assert told["too_long"] == ("BadRequestError", 400, "context_length_exceeded")
    assert told["no_messages"][:2] == ("BadRequestError", 400)
    assert told["bad_value"][:2] == ("BadRequestError", 400)
    assert told["wrong_key"][:2] == ("AuthenticationError", 401)
    assert all(error["message"] and error["type"] for error in errors.values())


def test_models(scripted: ScriptedLive, run: Run) -> None:
    assert run("models")[:2] == ["clawd", "clawd@ann"]
