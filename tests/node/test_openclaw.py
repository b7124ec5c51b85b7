"""A real OpenClaw on a real clawd: connected by the command, through a conversation, an abort, a plugin.

One story in steps, in the order of the file; each looks at what the steps before have left in the store.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.store.records import Turn
from tests.node.installed import installed
from tests.node.openclaw import Clawd, OpenClaw, end_group, scripted_clawd
from tests.node.scripted_daemon import Line
from tests.tiny_daemon import wait_for

pytestmark = [pytest.mark.openclaw, pytest.mark.timeout(480)]

MAIN = "<!-- openclaw:attempt:STABLE -->"
READ_NOTE = '<tool_call>\n{"name": "read", "arguments": {"path": "note.txt"}}\n</tool_call>'
NOTE = "The pelican lands at nine."
ANSWER = "Your note says that the pelican lands at nine."
SCRIPT = [
    Line((MAIN, "What does my note say?"), READ_NOTE),
    Line((MAIN, NOTE), ANSWER),
    Line((MAIN, "No, that is wrong"), "I am sorry: at ten, then."),
    Line((MAIN, "The stove is on"), "HEARTBEAT_OK"),
    Line((MAIN, "Thanks, that is right"), "Gladly."),
    Line((MAIN, "Are you still there?"), "I am."),
    Line((MAIN, "A new beginning"), "Hello again."),
    Line((MAIN, "The door is open"), "HEARTBEAT_OK"),
    Line((MAIN, "And how does it go on?"), "Well."),
]

ALWAYS_TRIED = {"clawhub.ai"}
"""The gateway asks its shop for the list of plugins as soon as it is up, and has no switch for that."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("openclaw")


@pytest.fixture(scope="module")
def served(home: Path) -> Iterator[Clawd]:
    with scripted_clawd(home / "clawd", SCRIPT) as running:
        yield running


@pytest.fixture(scope="module")
def claw(home: Path, served: Clawd) -> Iterator[OpenClaw]:
    claw = OpenClaw(installed(), home / "person", served.home)
    claw.set_up()
    (claw.workspace / "note.txt").write_text(f"{NOTE}\n")
    try:
        yield claw
    finally:
        claw.stop_gateway()


def newest(turns: list[Turn], words: str) -> Turn:
    """The newest turn that ends with these words of a user's."""
    return next(turn for turn in reversed(turns) if words in str(turn.messages[-1]["content"]))


def said_next(turn: Turn) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in turn.next_state or []]


def test_openclaw_accepts_what_connect_writes(claw: OpenClaw) -> None:
    before = claw.config.read_text()
    assert '+      "clawd": {' in claw.connect("--dry-run")
    assert claw.config.read_text() == before
    claw.connect()
    assert claw.config.read_text().startswith("// mine\n")
    assert "Config valid" in claw.run("config", "validate")
    claw.run("models", "set", "clawd/clawd")
    settings = claw.settings()
    assert settings["agents"]["defaults"]["sandbox"] == {"mode": "off"}
    assert settings["models"]["providers"]["clawd"]["models"][0]["contextWindow"] == 8192
    claw.start_gateway()


def test_a_prompt_that_does_not_fit_is_shown_as_that_and_lean_makes_it_fit(claw: OpenClaw, served: Clawd) -> None:
    assert "Context overflow" in claw.say("Hello?", fails=True)
    assert served.turns() == []
    claw.connect("--lean")
    claw.wait_for_reload("agents.defaults.skills")
    assert "says all of it already" in claw.connect("--lean")  # OpenClaw has kept every word of it
    claw.run("config", "validate")
    claw.say("/new")


def test_a_conversation_with_a_tool_call_is_one_session_and_is_judged(claw: OpenClaw, served: Clawd) -> None:
    assert claw.say("Hello, who are you?")  # the model's own words
    assert claw.say("What does my note say?") == ANSWER
    claw.say("No, that is wrong: it lands at ten.")

    turns = served.turns()
    assert len({turn.session_id for turn in turns}) == 1
    assert served.sessions_by_evidence() == {"affinity header": 1}
    assert [turn.kind for turn in turns] == ["main"] * 4
    hello, call, answer, sorry = turns
    assert hello.response_text and hello.response_ids
    assert len(hello.prompt_ids) < 4000  # lean
    assert {tool["function"]["name"] for tool in call.tools or []} >= {"exec", "read", "write", "edit"}
    assert call.response_text == READ_NOTE
    assert said_next(call) == [("tool", f"{NOTE}\n")]
    assert [message["role"] for message in answer.messages[-3:]] == ["user", "assistant", "tool"]
    assert [previous.id for previous in turns[:-1]] == [turn.previous_id for turn in turns[1:]]
    assert said_next(hello)[0][1].endswith("What does my note say?")
    assert said_next(answer)[0][1].endswith("No, that is wrong: it lands at ten.")
    wait_for(lambda: bool(served.scores(answer.id)), "the answer is judged", timeout_s=30)
    assert served.scores(answer.id) == [-1]
    assert sorry.state == "waiting"


def test_what_openclaw_does_by_itself_is_no_reply(claw: OpenClaw, served: Clawd) -> None:
    claw.run("system", "event", "--mode", "now", "--text", "The stove is on")
    wait_for(lambda: served.turns()[-1].kind == "side", "the heartbeat has come", timeout_s=60)
    claw.run("infer", "model", "run", "--gateway", "--model", "clawd/clawd", "--prompt", "Say hi.", "--json")
    claw.say("Thanks, that is right.")

    turns = served.turns()
    assert [turn.kind for turn in turns[4:]] == ["side", "side", "main"]
    sorry, heartbeat = turns[3:5]
    assert heartbeat.session_id == sorry.session_id
    assert heartbeat.next_state is None
    assert said_next(sorry)[0][1].endswith("Thanks, that is right.")
    wait_for(lambda: bool(served.scores(sorry.id)), "the answer is judged", timeout_s=30)
    assert served.scores(sorry.id) == [1]


def abort_an_answer(claw: OpenClaw, served: Clawd, text: str) -> Turn:
    """Ask, and go away when the answer has begun."""
    tokens = served.engine()["response_tokens"]
    process = claw.begin("agent", "--agent", "main", "--message", text, "--json")
    try:
        wait_for(lambda: served.engine()["response_tokens"] > tokens + 3, "the answer has begun", timeout_s=90)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        end_group(process)
    wait_for(lambda: served.engine()["running"] == 0, "the engine is idle", timeout_s=10)
    wait_for(lambda: newest(served.turns(), text).finished_at is not None, "the turn is stored")
    return newest(served.turns(), text)


def test_an_aborted_answer_leaves_the_engine_idle_and_the_session_whole(claw: OpenClaw, served: Clawd) -> None:
    subjects = ("a pelican", "a lighthouse", "a railway")  # a small model may be done before one gets to go away
    tries = (abort_an_answer(claw, served, f"Write a very long story about {subject}.") for subject in subjects)
    aborted = next(turn for turn in tries if turn.reason == "aborted")
    assert (aborted.state, aborted.finish_reason, aborted.next_state) == ("discarded", "cancelled", None)
    assert len(aborted.response_ids) == len(aborted.logprobs) > 0

    assert claw.say("Are you still there?") == "I am."
    after = served.turns()[-1]
    assert (after.kind, after.session_id) == ("main", aborted.session_id)
    assert aborted.response_text not in str(after.messages)
    assert served.engine()["running"] == 0


def test_with_the_plugin_openclaw_says_which_session_it_is(claw: OpenClaw, served: Clawd) -> None:
    claw.install_plugin()
    before = len(served.turns())
    claw.say("/new")
    assert claw.say("A new beginning.") == "Hello again."
    claw.run("system", "event", "--mode", "now", "--text", "The door is open")
    wait_for(lambda: served.turns()[-1].kind == "side", "the heartbeat has come", timeout_s=60)
    assert claw.say("And how does it go on?") == "Well."

    beginning, heartbeat, going_on = served.turns()[before:]
    assert served.sessions_by_evidence()["header"] == 1
    assert [turn.kind for turn in (beginning, heartbeat, going_on)] == ["main", "side", "main"]
    assert served.kind_evidence(heartbeat.id) == "header"
    assert beginning.session_id == heartbeat.session_id == going_on.session_id
    assert said_next(beginning)[0][1].endswith("And how does it go on?")


def test_nothing_failed_and_nothing_else_was_reached(claw: OpenClaw, served: Clawd) -> None:
    assert [turn.finish_reason for turn in served.turns() if turn.finish_reason in (None, "error")] == []
    assert served.errors() == []
    assert claw.reached_for() <= ALWAYS_TRIED
