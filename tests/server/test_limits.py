"""What a client is told when the queue is too long for it, by number or by time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from openai import InternalServerError, OpenAI

from clawd.config import ServerSettings, Settings
from tests.server.engine.asking import until
from tests.server.live import Live, live_server


def served(home: Path, **server: object) -> object:
    return live_server(home, Settings(server=ServerSettings.model_validate({"max_running": 1, **server})))


@contextmanager
def talking(live: Live, key: str = "none") -> Iterator[httpx.Response]:
    """A stream that goes on until the block ends: at this temperature no end token is likely."""
    body = {"model": "clawd", "messages": [{"role": "user", "content": "Talk."}], "stream": True}
    body |= {"temperature": 2, "top_p": 1}
    headers = {"Authorization": f"Bearer {key}"}
    with live.http.stream("POST", "/v1/chat/completions", json={**body, "seed": 1}, headers=headers) as response:
        assert response.status_code == 200
        before = live.services.in_flight
        yield response
    until(lambda: live.services.in_flight < before, 10)


@pytest.mark.parametrize("stream", [True, False])
def test_who_waits_too_long_is_asked_to_come_back(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, max_wait_s=0.1) as live, talking(live):  # type: ignore[attr-defined]
        response = live.chat("Hello", stream=stream)
        if stream:
            assert response.status_code == 200, "the headers go out before anybody knows"
            error = json.loads(response.text.strip().rsplit("data: ", 1)[1])["error"]
        else:
            assert response.status_code == 503
            assert int(response.headers["Retry-After"]) > 0
            error = response.json()["error"]
            with pytest.raises(InternalServerError):
                live.openai().chat.completions.create(model="clawd", messages=[{"role": "user", "content": "Hi"}])
        assert (error["code"], error["type"]) == ("took_too_long", "server_error")
        assert "max_wait_s" in error["message"]
        counts = live.store.turns.counts()
        assert counts == {"discarded: error": 1 if stream else 2, "recorded": 1}, "it never trains"


def test_one_user_cannot_fill_the_queue_for_another(tmp_path: Path) -> None:
    with served(tmp_path, max_running=2, max_waiting=4, max_waiting_share=0.25) as live:  # type: ignore[attr-defined]
        (_, ann), (_, bob) = live.store.people.add("ann"), live.store.people.add("bob")
        with talking(live, ann), talking(live, ann), talking(live, ann):
            refused = live.chat("One more", headers={"Authorization": f"Bearer {ann}"})
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) > 0
            assert refused.json()["error"]["code"] == "queue_share_full"
            answered = live.chat("Hello", headers={"Authorization": f"Bearer {bob}"}, max_tokens=2)
            assert answered.status_code == 200, "and begins although ann's came first and go on"
        assert live.chat("Again", headers={"Authorization": f"Bearer {ann}"}, max_tokens=1).status_code == 200


ROUTES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}]},
}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(("share", "code"), [(1.0, "queue_full"), (0.5, "queue_share_full")])
def test_of_many_that_come_at_once_no_more_are_let_in(tmp_path: Path, path: str, share: float, code: str) -> None:
    bounds = {"max_waiting": int(3 / share), "max_waiting_share": share}
    body = {"model": "clawd", "max_tokens": 1, **ROUTES[path]}
    with served(tmp_path, **bounds) as live, ThreadPoolExecutor(30) as pool:  # type: ignore[attr-defined]
        with talking(live):
            asked = [pool.submit(live.http.post, path, json=body) for _ in range(30)]
            until(lambda: sum(one.done() for one in asked) >= 27, 30)
            refused = [one.result() for one in asked if one.done()]
            assert {reply.status_code for reply in refused} == {429}
            assert path == "/v1/messages" or {reply.json()["error"]["code"] for reply in refused} == {code}
        assert sorted(one.result().status_code for one in asked) == [200] * 3 + [429] * 27
        assert live.settled()
        assert not any(live.services.in_flight_of.values())


def test_a_client_that_tries_again_is_answered(tmp_path: Path) -> None:
    with served(tmp_path, max_waiting=0) as live:  # type: ignore[attr-defined]
        client = OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=5)
        with talking(live):
            assert live.chat("Hello").status_code == 429
        answer = client.chat.completions.create(
            model="clawd", messages=[{"role": "user", "content": "Hi"}], max_tokens=2
        )
        assert answer.usage is not None and answer.usage.completion_tokens == 2
