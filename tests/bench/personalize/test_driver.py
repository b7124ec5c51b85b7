"""When the driver goes on, and a model as the user's voice."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from clawd.bench.personalize.driver import is_settled
from clawd.bench.personalize.users import PERSONAS
from clawd.bench.personalize.users.endpoint import EndpointVoice
from clawd.errors import BenchFailed


def status(waiting: int = 0, update: str | None = None, judging: int = 0) -> dict[str, Any]:
    newest = None if update is None else {"number": 1, "state": update, "reason": None}
    adapter = {"samples_waiting": waiting, "samples_needed": 16, "last_update": newest}
    return {"turns": {"main": {"judging": judging} if judging else {}}, "adapters": [adapter]}


@pytest.mark.parametrize(
    ("told", "settled"),
    [
        (status(), True),
        (status(waiting=15), True),
        (status(waiting=16), False),
        (status(judging=1), False),
        (status(update="running"), False),
        (status(update="staged"), False),
        (status(update="active"), True),
        (status(update="refused"), True),
        (status(waiting=16, update="failed"), False),  # it is tried again
    ],
)
def test_settled(told: dict[str, Any], settled: bool) -> None:
    assert is_settled(told) is settled


class Model(BaseHTTPRequestHandler):
    """Answers every chat completion with `reply`."""

    reply = "Please be kinder."
    asked: list[dict[str, Any]] = []  # noqa: RUF012  of the class on purpose: the server makes a handler per request

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append({"path": self.path, "key": self.headers["Authorization"], **body})
        told = json.dumps({"choices": [{"message": {"role": "assistant", "content": self.reply}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    Model.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def test_a_model_speaks_for_the_user(endpoint: str) -> None:
    teacher = PERSONAS["teacher"]
    with EndpointVoice(endpoint, "some-model", "secret") as voice:
        said = voice.say(teacher, "corrects", "What is 2 + 2?", "4.", random.Random(0))
    assert said == "Please be kinder."
    (asked,) = Model.asked
    assert (asked["path"], asked["model"], asked["key"]) == ("/v1/chat/completions", "some-model", "Bearer secret")
    content = asked["messages"][0]["content"]
    assert teacher.wish in content
    assert "4." in content


def test_an_endpoint_that_does_not_answer_is_told() -> None:
    with EndpointVoice("http://127.0.0.1:9/v1", "m") as voice, pytest.raises(BenchFailed, match="endpoint"):
        voice.say(PERSONAS["ta"], "lost", "q", "a", random.Random(0))


def test_an_endpoint_that_says_nothing_is_told(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "reply", "  ")
    with EndpointVoice(endpoint, "m") as voice, pytest.raises(BenchFailed, match="said nothing"):
        voice.say(PERSONAS["ta"], "lost", "q", "a", random.Random(0))
