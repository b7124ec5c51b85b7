"""What JSON can say and clawd can't hold is refused at the door, on every route, and nothing of it is kept."""

from __future__ import annotations

import httpx
import pytest

from tests.server.live import Live

HI = '[{"role": "user", "content": "hi"}]'
TOOL = '{"type": "function", "function": {"name": "f", "parameters": {"minimum": NUMBER}}}'
BODIES = {
    "a parameter": ("/v1/chat/completions", f'{{"model": "clawd", "messages": {HI}, "temperature": NUMBER}}'),
    "a seed": ("/v1/chat/completions", f'{{"model": "clawd", "messages": {HI}, "seed": NUMBER}}'),
    "an unknown field": ("/v1/chat/completions", f'{{"model": "clawd", "messages": {HI}, "x": [{{"y": NUMBER}}]}}'),
    "a message": ("/v1/chat/completions", '{"model": "clawd", "messages": [{"role": "user", "name": NUMBER}]}'),
    "a tool": ("/v1/chat/completions", f'{{"model": "clawd", "messages": {HI}, "tools": [{TOOL}]}}'),
    "a prompt": ("/v1/completions", '{"model": "clawd", "prompt": [NUMBER]}'),
    "an input": (
        "/v1/messages",
        '{"model": "clawd", "max_tokens": 1, "messages": [{"role": "assistant", "content":'
        ' [{"type": "tool_use", "id": "a", "name": "f", "input": {"x": NUMBER}}]}, {"role": "user", "content": "hi"}]}',
    ),
    "a schema that is counted": (
        "/v1/messages/count_tokens",
        f'{{"model": "clawd", "messages": {HI}, "tools": [{{"name": "f", "input_schema": {{"minimum": NUMBER}}}}]}}',
    ),
    "what is given back": ("/v1/responses", '{"model": "clawd", "input": "hi", "metadata": {"x": NUMBER}}'),
    "a tool that is given back": (
        "/v1/responses",
        '{"model": "clawd", "input": "hi", "tools": [{"type": "function", "name": "f", "x": NUMBER}]}',
    ),
    "feedback": ("/clawd/v1/feedback", '{"turn_id": "x", "score": NUMBER}'),
}


def post(live: Live, path: str, body: str) -> httpx.Response:
    return live.http.post(path, content=body, headers={"content-type": "application/json"})


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "1" + "0" * 5000])
@pytest.mark.parametrize("place", BODIES)
def test_numbers_that_no_double_holds_are_a_400(live: Live, place: str, number: str) -> None:
    path, body = BODIES[place]
    before = live.store.turns.counts()
    reply = post(live, path, body.replace("NUMBER", number))
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["message"]
    assert live.store.turns.counts() == before


def test_names_of_unknown_fields_are_kept_up_to_a_bound(live: Live) -> None:
    names = [*(f"field_{number}" for number in range(1000)), "x" * 100_000]
    assert live.chat("hi", **dict.fromkeys(names, 1), max_tokens=1).status_code == 200
    assert live.chat("hi", field_0=1, max_tokens=1).status_code == 200
    counted = live.http.get("/clawd/v1/status").json()["ignored_fields"]
    assert counted["field_0"] == 2
    assert len(counted) <= 250 and max(map(len, counted)) <= 100
    assert sum(counted.values()) == 1002, "all are counted"
