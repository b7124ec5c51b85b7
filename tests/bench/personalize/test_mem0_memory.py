"""Memory by the real Mem0: what it keeps, what it asks of its model, and that it talks to nobody else."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from clawd.bench.daemon import throw_away_daemon
from clawd.bench.personalize import mem0_memory
from clawd.bench.personalize.arms import NO_LEARNING
from clawd.bench.personalize.mem0_memory import EXTRACTION_CONTEXT, Embedder, Mem0Memory
from clawd.bench.personalize.memories import require_memory
from clawd.bench.personalize.memory import HEADER
from clawd.config import ModelSettings
from clawd.errors import BenchFailed, MissingExtra
from clawd.model.names import base_name
from tests.bench.personalize.test_memory import conversation
from tests.tiny_gguf import write_tiny_model

NOBODY = "http://127.0.0.1:9"
TALK = conversation("What is 2 + 2?", "**4**", "Please don't use bold text.", "4", "Thanks, perfect.")


class Model(BaseHTTPRequestHandler):
    """Extracts `said`, whatever it is asked."""

    said = ""
    asked: list[dict[str, Any]] = []  # noqa: RUF012  of the class on purpose: the server makes a handler per request

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append({"turn": self.headers["X-Turn-Type"], "path": self.path, **body})
        message = {"role": "assistant", "content": self.said}
        answer = {"id": "1", "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
        told = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
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
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test in which anything, in any thread, connects elsewhere or looks a name up."""
    elsewhere: list[object] = []
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] != "127.0.0.1":
            elsewhere.append(address)
            raise ConnectionRefusedError
        connect(self, address)

    def look_up_here(host: Any, *rest: Any, **more: Any) -> Any:
        if host != "127.0.0.1":
            elsewhere.append(host)
            raise socket.gaierror
        return look_up(host, *rest, **more)

    monkeypatch.setattr(socket.socket, "connect", connect_here)
    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
    yield
    assert elsewhere == []


def test_raw_corrections_are_found_again(tmp_path: Path) -> None:
    with closing(Mem0Memory(NOBODY, "m", tmp_path / "mem0", "ann", extracts=False)) as memory:
        assert memory.prompt("What is 3 + 3?") == []
        memory.hear(TALK)
        (message,) = memory.prompt("What is 3 + 3?")
    assert message == {"role": "system", "content": f"{HEADER}\n- Please don't use bold text"}


def test_no_model_of_its_own_is_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where one is and isn't there, Mem0 says so."""
    with closing(Mem0Memory(NOBODY, "m", tmp_path / "mem0", "ann", extracts=False)) as memory:
        memory.hear(TALK)
        memory.prompt("What is 3 + 3?")
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_nothing_is_written_outside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    with closing(Mem0Memory(NOBODY, "m", tmp_path / "mem0", "ann", extracts=False)) as memory:
        memory.hear(TALK)
    assert list((tmp_path / "home").iterdir()) == []
    assert (tmp_path / "mem0" / "history.db").exists()


def test_what_the_model_extracts_is_found_again(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fact = "User wants no bold text in replies"
    monkeypatch.setattr(Model, "said", json.dumps({"memory": [{"id": "0", "text": fact, "attributed_to": "user"}]}))
    with closing(Mem0Memory(endpoint, "tiny", tmp_path / "mem0", "ann", extracts=True)) as memory:
        memory.hear(TALK)
        (message,) = memory.prompt("What is 3 + 3?")
    assert message["content"].splitlines()[1:] == [f"- {fact}"]
    (asked,) = Model.asked
    assert (asked["path"], asked["model"], asked["turn"]) == ("/v1/chat/completions", "tiny", "side")
    assert all(each["content"] in asked["messages"][-1]["content"] for each in TALK)


@pytest.mark.parametrize("said", ["no JSON", '{"memory": ["bold text"]}', '["bold text"]', '{"memory": [{"id": "0"}]}'])
def test_a_model_that_extracts_nothing_of_use_leaves_nothing(
    said: str, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "said", said)
    with closing(Mem0Memory(endpoint, "tiny", tmp_path / "mem0", "ann", extracts=True)) as memory:
        memory.hear(TALK)
        assert memory.prompt("What is 3 + 3?") == []


@pytest.mark.e2e
def test_the_bare_base_extracts_in_side_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With shorter instructions than Mem0's: in the tiny model's vocabulary of bytes those are 34,000 tokens."""
    model = write_tiny_model(tmp_path / "tiny.gguf", context=4096)
    with throw_away_daemon(["--model.path", str(model), *NO_LEARNING]) as daemon:
        memory = Mem0Memory(daemon.url, base_name(ModelSettings(), model), tmp_path / "mem0", "ann", extracts=True)
        monkeypatch.setattr("mem0.memory.main.ADDITIVE_EXTRACTION_PROMPT", "Extract facts as JSON.")
        with closing(memory):
            memory.hear(TALK)
        turns = httpx.get(f"{daemon.url}/clawd/v1/status").json()["turns"]
    assert turns["side"] == 1
    assert not turns["main"]


def test_a_mem0_that_tells_its_makers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Mem0Memory(NOBODY, "m", tmp_path / "first", "ann", extracts=False)):
        monkeypatch.setattr("mem0.memory.telemetry.MEM0_TELEMETRY", True)  # as if it had been imported before
        with pytest.raises(BenchFailed, match="telemetry"):
            Mem0Memory(NOBODY, "m", tmp_path / "second", "ann", extracts=False)


@pytest.mark.e2e
def test_a_context_that_is_too_small_is_told(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf", context=4096)
    with throw_away_daemon(["--model.path", str(model), *NO_LEARNING]) as daemon:
        memory = Mem0Memory(daemon.url, base_name(ModelSettings(), model), tmp_path / "mem0", "ann", extracts=True)
        with closing(memory), pytest.raises(BenchFailed, match="context holds 4096"):
            memory.hear(TALK)


def test_what_an_arm_needs_is_told_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = write_tiny_model(tmp_path / "small.gguf", context=EXTRACTION_CONTEXT - 1)
    require_memory("notes", small)
    require_memory("mem0-raw", small)
    with pytest.raises(BenchFailed, match="memory-mem0-raw"):
        require_memory("mem0", small)
    require_memory("mem0", write_tiny_model(tmp_path / "large.gguf", context=EXTRACTION_CONTEXT))
    monkeypatch.setattr(mem0_memory, "PACKAGES", ("mem0", "no_such_package"))
    with pytest.raises(MissingExtra, match=r"no_such_package: pip install 'clawd\[bench-mem0\]'"):
        require_memory("mem0-raw", small)


def test_likeness_keeps_its_order_and_is_never_negative() -> None:
    words = ["Use no lists, please.", "Don't write lists.", "The weather is fine."]
    vectors = np.array(Embedder().embed_batch(words))
    likeness = vectors @ vectors.T
    assert np.allclose(np.diag(likeness), 1)
    assert likeness.min() >= 0
    assert likeness[0, 1] > likeness[0, 2]
