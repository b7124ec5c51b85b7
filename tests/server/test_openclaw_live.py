"""At the endpoint: what names a session (S1), a prompt that leaves one token (E12), five turns in status (S5)."""

from __future__ import annotations

import pytest

from clawd.learner.judge.judging import Judging
from tests.server.live import Live

RUNTIME = "\n\nRuntime: agent=main | session=agent:main:main | sessionId=6f1c | host=box"
SYSTEM = {"role": "system", "content": "<!-- openclaw:attempt:STABLE -->"}


@pytest.mark.parametrize(
    ("headers", "body", "ending", "evidence"),
    [
        ({}, {"prompt_cache_key": "k1"}, "", "prompt_cache_key"),
        ({"session_id": "k2:1", "x-session-affinity": "k2:1"}, {}, "", "affinity header"),
        ({}, {}, RUNTIME, "runtime line"),
    ],
)
def test_three_turns_are_one_session(live: Live, headers: dict, body: dict, ending: str, evidence: str) -> None:
    messages: list[dict] = []
    turns = []
    for number in range(3):
        messages.append({"role": "user", "content": f"{evidence} {number}: say something{ending}"})
        reply = live.chat(messages, headers=headers, **body).json()
        messages.append(reply["choices"][0]["message"])
        turns.append(live.turn(reply["id"]))
    assert len({turn.session_id for turn in turns}) == 1
    assert [turn.kind for turn in turns] == ["main"] * 3
    assert live.http.get("/clawd/v1/status").json()["sessions"]["by_evidence"][evidence] == 1
    assert live.store.turns.get(turns[1].id).next_state == [messages[4]]


def words(live: Live, share: float) -> dict:
    return {"role": "user", "content": "word " * int(share * live.services.engine.context)}


@pytest.mark.parametrize(("before", "share"), [([SYSTEM], 0.6), ([], 0.95)])
def test_one_token_that_a_full_prompt_leaves_is_an_overflow(live: Live, before: list[dict], share: float) -> None:
    body = {"model": "clawd", "messages": [*before, words(live, share)], "max_completion_tokens": 1}
    reply = live.http.post("/v1/chat/completions", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_one_token_after_a_short_prompt_is_a_wish(live: Live) -> None:
    for messages in ([{"role": "user", "content": "hi"}], [SYSTEM, {"role": "user", "content": "hi"}]):
        body = {"model": "clawd", "messages": messages, "max_completion_tokens": 1}
        assert live.http.post("/v1/chat/completions", json=body).status_code == 200


def test_status_says_what_became_of_five_turns_and_what_is_missing(live: Live) -> None:
    _, key = live.store.people.add("five")
    messages: list[dict] = []
    for number in range(5):
        messages.append({"role": "user", "content": f"question number {number}"})
        body = {"model": "clawd", "messages": messages, "max_tokens": 8}
        reply = live.http.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}).json()
        messages.append(reply["choices"][0]["message"])
    Judging(live.store, model_judges=False).tick()
    adapters = live.http.get("/clawd/v1/status", headers={"Authorization": f"Bearer {key}"}).json()["adapters"]
    told = next(adapter for adapter in adapters if adapter["name"] == "five")
    assert (told["samples_waiting"], told["samples_needed"]) == (0, 16)
    assert told["scored"] == 4
    assert told["not_scored"] == {"no next state yet": 1}
    assert told["waits_for"] == "16 more judged turns with a signal"
