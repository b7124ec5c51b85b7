"""Cases P1 and P2: who may speak to the server at all. Plus bodies that are too large, and a full queue."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from clawd.config import Settings
from clawd.server.access import _host_of
from tests.server.live import Live, live_server
from tests.tiny_daemon import wait_for

ROUTES = [
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/clawd"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/responses"),
    ("GET", "/metrics"),
    ("GET", "/clawd/v1/status"),
    ("GET", "/clawd/v1/turns/x"),
    ("POST", "/clawd/v1/feedback"),
    ("POST", "/v1/completions"),
    ("GET", "/openapi.json"),
    ("GET", "/nowhere"),
]
CHAT = {"model": "clawd", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}


def test_no_route_is_left_out_here(live: Live) -> None:
    page = live.http.get("/openapi.json").json()
    for path, methods in page["paths"].items():
        form = re.compile(re.sub(r"\{\w+\}", ".+", path))
        for method in methods:
            assert any(method.upper() == known and form.fullmatch(tried) for known, tried in ROUTES), (method, path)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:30000"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost@evil.example"},
        {"host": "[::1"},
        {"host": ""},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.example"},
        {"origin": "file://"},
    ],
)
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_foreign_host_or_origin_is_refused_on_every_route(
    live: Live, headers: dict[str, str], method: str, path: str
) -> None:
    reply = live.http.request(method, path, headers=headers, json=CHAT if method == "POST" else None)
    assert reply.status_code in (400, 403)  # an empty Host is no HTTP
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_a_preflight_gets_nothing(live: Live) -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    reply = live.http.options("/v1/chat/completions", headers=headers)
    assert reply.status_code == 403
    assert reply.json()["error"]["code"] == "forbidden_host"
    assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:30000", "127.0.0.1", "127.8.8.8:1", "[::1]:30000"])
def test_this_machines_own_names_are_let_in(live: Live, name: str) -> None:
    assert live.http.get("/healthz", headers={"host": name, "origin": f"http://{name}"}).status_code == 200


@pytest.mark.parametrize(
    ("url", "host"), [("//a:1", "a"), ("https://A.b", "a.b"), ("null", None), ("//[::1", None), ("", None)]
)
def test_hosts_are_read_as_urls_are(url: str, host: str | None) -> None:
    assert _host_of(url) == host


def test_a_single_model_is_told_or_not_found(live: Live) -> None:
    assert live.http.get("/v1/models/clawd@default").json()["id"] == "clawd@default"
    assert live.http.get("/v1/models/gpt-9").json()["error"]["code"] == "model_not_found"


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Thinks that it listens to all the world (and listens on loopback)."""
    settings = Settings(server={"host": "0.0.0.0", "max_body_mb": 1, "max_running": 1, "max_waiting": 0})
    with live_server(tmp_path_factory.mktemp("home"), settings) as server:
        yield server


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic eDp5"}, {"x-api-key": "wrong"}]
)
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_needs_a_key(open_server: Live, headers: dict, method: str, path: str) -> None:
    reply = open_server.http.request(method, path, headers=headers, json=CHAT if method == "POST" else None)
    assert reply.status_code == 401
    assert reply.json()["error"]["type"] == "authentication_error"


def test_a_key_opens(open_server: Live) -> None:
    _, key = open_server.store.people.add("ada")
    for headers in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}, {"authorization": "", "x-api-key": key}):
        reply = open_server.http.post("/v1/chat/completions", json=CHAT, headers={**headers, "host": "clawd.example"})
        assert reply.status_code == 200


def test_a_body_that_is_too_large_is_refused_however_it_comes(open_server: Live) -> None:
    _, key = open_server.store.people.add("bob")
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    body = b'{"model": "clawd", "messages": [{"role": "user", "content": "' + b"x" * 1_100_000 + b'"}]}'
    for content in (body, iter([body[:600_000], body[600_000:]])):
        reply = open_server.http.post("/v1/chat/completions", content=content, headers=headers)
        assert reply.status_code == 413, reply.text
        assert reply.json()["error"]["code"] == "request_too_large"


def test_a_full_queue_asks_to_come_back(open_server: Live) -> None:
    _, key = open_server.store.people.add("eve")
    headers = {"authorization": f"Bearer {key}"}
    story = [{"role": "user", "content": "Tell me a very long story about a whale."}]
    long = {**CHAT, "messages": story, "max_tokens": 800, "stream": True}
    url = f"{open_server.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=long, headers=headers, timeout=60) as first:
        lines = first.iter_lines()  # held: to drop it is to close the stream
        next(lines)
        refused = httpx.post(url, json=CHAT, headers=headers, timeout=60)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert refused.json()["error"]["type"] == "rate_limit_error"
    assert open_server.wait_until_idle(5)
    wait_for(lambda: open_server.services.in_flight == 0, "the cut request is over")
    assert httpx.post(url, json=CHAT, headers=headers, timeout=60).status_code == 200
