"""While a long prompt is read, the client hears of it: headers at once, then a sign of life now and again. Case E3."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clawd.server.answers import COMMENT_EVERY_S
from clawd.server.anthropic.writer import MessageWriter
from clawd.server.engine.engine import Engine, Handle
from clawd.server.engine.types import GenerationRequest, Sink
from clawd.server.sse import COMMENT
from tests.server.live import Live, live_server

LONGEST_SILENCE_S = 10
INPUT = {"input": "hi"}


class HeldEngine:
    """The real engine, but a request waits until `go`: as behind a prompt that takes minutes to read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: list[Callable[[], object]] = []
        self.began = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, request: GenerationRequest, sink: Sink) -> Handle:
        self._held.append(lambda: self._engine.submit(request, sink))
        self.began.set()
        return Handle(request, lambda: None)

    def go(self) -> None:
        for submit in self._held:
            submit()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Live, HeldEngine]]:
    with live_server(tmp_path) as live:
        engine = HeldEngine(live.services.engine)
        live.services.engine = engine  # type: ignore[assignment]
        yield live, engine


def test_a_stream_shows_life_before_its_first_token(held: tuple[Live, HeldEngine]) -> None:
    live, engine = held
    assert COMMENT_EVERY_S <= LONGEST_SILENCE_S
    messages = {"messages": [{"role": "user", "content": "hi"}]}
    bodies = {"chat/completions": messages, "completions": {"prompt": "hi"}, "messages": messages, "responses": INPUT}
    first = {"messages": b"event: message_start\n", "responses": b"event: response.created\n"}
    signs = {"messages": MessageWriter.sign_of_life}
    last = {"messages": b"event: message_stop\n", "responses": b"event: response.incomplete\n"}
    heard: dict[str, list[bytes]] = {}

    def listen(route: str) -> None:
        body = {"model": "clawd", "stream": True, "max_tokens": 3, "max_output_tokens": 3, **bodies[route]}
        with httpx.stream("POST", f"{live.url}/v1/{route}", json=body, timeout=60) as reply:
            parts = heard[route] = [f"{reply.status_code}".encode()]
            parts += reply.iter_raw()

    threads = [threading.Thread(target=listen, args=(route,)) for route in bodies]
    for thread in threads:
        thread.start()
    while not (
        len(heard) == len(bodies)
        and all(signs.get(route, COMMENT) in b"".join(parts) for route, parts in heard.items())
    ):
        assert any(thread.is_alive() for thread in threads)
        threads[0].join(0.05)
    engine.go()
    for thread in threads:
        thread.join()
    for route, parts in heard.items():
        status, text = parts[0], b"".join(parts[1:])
        assert status == b"200"
        before, after = text.split(signs.get(route, COMMENT), 1)
        assert before.startswith(first.get(route, b"data: {"))
        assert last.get(route, b"data: [DONE]\n") in after
