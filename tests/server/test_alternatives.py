"""`n` answers to one chat request: how they come, what they cost, and that they give one sample at most."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clawd.errors import EngineStopped
from clawd.server.engine.engine import Engine, Handle
from clawd.server.engine.types import GenerationRequest, SamplingParams, Sink
from clawd.server.openai_chat.schema import MAX_ANSWERS, of_answer
from clawd.store import Store
from clawd.store.records import Turn
from tests.server.live import Live, live_server
from tests.server.posting import Client, assistant, user

QUESTION = [{"role": "user", "content": "Tell a story about a lighthouse."}]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server that nobody else asks: llama.cpp rounds by who shares a batch."""
    with live_server(tmp_path_factory.mktemp("home")) as server:
        yield server


def turns_of(live: Live, choices: list) -> list[Turn]:
    return [live.store.turns.get(choice.turn_id) for choice in choices]


def test_the_openai_client_gets_n_answers_and_pays_the_prompt_once(quiet: Live) -> None:
    read = quiet.services.engine.stats().prompt_tokens
    completion = quiet.openai().chat.completions.create(
        model="clawd", messages=QUESTION, n=4, seed=7, temperature=1.0, max_tokens=12
    )
    assert [choice.index for choice in completion.choices] == [0, 1, 2, 3]
    assert len({choice.message.content for choice in completion.choices}) > 1
    usage = completion.usage
    assert usage is not None and usage.completion_tokens == 4 * 12
    turns = turns_of(quiet, completion.choices)
    assert [turn.response_text for turn in turns] == [choice.message.content for choice in completion.choices]
    assert usage.prompt_tokens == len(turns[0].prompt_ids)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert quiet.turn(completion.id).id == turns[0].id
    # Read is the prompt once, and for each further answer the one token that it is sampled after.
    assert quiet.services.engine.stats().prompt_tokens - read <= usage.prompt_tokens + 3


def test_with_a_seed_answers_repeat_and_the_first_is_that_of_one(quiet: Live) -> None:
    def texts(n: int, seed: int) -> list[str]:
        reply = quiet.chat(QUESTION, n=n, seed=seed, temperature=1.0, max_tokens=6).json()
        return [choice["message"]["content"] for choice in reply["choices"]]

    texts(3, 11)  # reads the prompt
    assert texts(3, 11) == texts(3, 11)
    assert texts(3, 11)[0] == texts(1, 11)[0]


def test_derived_seeds_differ_by_place_and_by_seed_and_none_stays_none() -> None:
    seeds = [of_answer(SamplingParams(seed=seed), index).seed for seed in range(50) for index in range(MAX_ANSWERS)]
    assert len(set(seeds)) == len(seeds)
    assert [of_answer(SamplingParams(seed=seed), 0).seed for seed in range(3)] == [0, 1, 2]
    assert of_answer(SamplingParams(), 3).seed is None


def test_a_stream_of_n_tells_them_apart_by_index(live: Live) -> None:
    stream = live.openai().chat.completions.create(
        model="clawd",
        messages=QUESTION,
        n=3,
        max_tokens=8,
        temperature=1.0,
        stream=True,
        stream_options={"include_usage": True},
    )
    texts, ends, ids, usage = ["", "", ""], [0, 0, 0], {}, []
    for chunk in stream:
        usage += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] += choice.finish_reason is not None
            if choice.delta.role:
                ids[choice.index] = choice.turn_id  # type: ignore[attr-defined]
    assert ends == [1, 1, 1]
    assert texts == [live.store.turns.get(ids[index]).response_text for index in range(3)]
    assert [u.completion_tokens for u in usage] == [24]


@pytest.mark.parametrize("n", [0, -1, MAX_ANSWERS + 1, "two", 1.5])
def test_an_n_that_cannot_be_is_a_400(live: Live, n: object) -> None:
    reply = live.chat(QUESTION, n=n)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "n")


def test_when_the_client_goes_all_answers_end(live: Live) -> None:
    body = {"model": "clawd", "messages": QUESTION, "n": 5, "max_tokens": 2000, "temperature": 1.0, "stream": True}
    ids: list[str] = []
    with httpx.stream("POST", f"{live.url}/v1/chat/completions", json=body, timeout=60) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                choice = json.loads(line.removeprefix("data: "))["choices"][0]
                ids += [choice["turn_id"]] if "turn_id" in choice else []
                if choice["delta"].get("content"):
                    break
    assert live.wait_until_idle(2)
    assert len(ids) == 5
    assert live.settled()
    assert {live.store.turns.get(turn_id).reason for turn_id in ids} == {"aborted"}


def test_only_the_answer_that_the_conversation_goes_on_from_is_judged(live: Live) -> None:
    reply = live.chat("Alternatives, please: name an animal.", n=4, temperature=1.5, max_tokens=10).json()
    ids = [choice["turn_id"] for choice in reply["choices"]]
    assert {(live.store.turns.get(i).state, live.store.turns.get(i).reason) for i in ids} == {
        ("discarded", "alternative")
    }
    chosen = reply["choices"][2]
    messages = [
        {"role": "user", "content": "Alternatives, please: name an animal."},
        {"role": "assistant", "content": chosen["message"]["content"]},
        {"role": "user", "content": "No, a smaller one."},
    ]
    follow = live.chat(messages, n=2).json()
    judged = [i for i in ids if live.store.turns.get(i).state == "judging"]
    assert judged == [chosen["turn_id"]]
    assert live.store.turns.get(judged[0]).next_state == [{"role": "user", "content": "No, a smaller one."}]
    assert live.turn(follow["id"]).previous_id == judged[0]
    # The same reaction to another of them comes too late: one request, one sample.
    messages[1]["content"] = reply["choices"][1]["message"]["content"]
    live.chat(messages)
    assert [i for i in ids if live.store.turns.get(i).state == "judging"] == judged
    assert live.store.verify() == []


def test_feedback_names_one_of_several(live: Live) -> None:
    reply = live.chat("Alternatives, please: name a plant.", n=3, temperature=1.5, max_tokens=10).json()
    ids = [choice["turn_id"] for choice in reply["choices"]]
    applied = [
        live.http.post("/clawd/v1/feedback", json={"turn_id": turn_id, "score": 1}).json()["applied"]
        for turn_id in ids[1:]
    ]
    assert applied == [True, False]
    assert [live.store.turns.get(turn_id).state for turn_id in ids] == ["discarded", "judging", "discarded"]


def test_a_side_request_with_alternatives_stays_a_side_turn(live: Live) -> None:
    reply = live.chat("title", n=2, headers={"X-Turn-Type": "side"}).json()
    assert {live.store.turns.get(choice["turn_id"]).reason for choice in reply["choices"]} == {"side turn"}


def test_a_rewritten_history_after_alternatives_is_nobodys_next_state(store: Store) -> None:
    """The session is known by its name, the answer isn't recognised: the reaction must not go to an older turn."""
    client = Client(store, x_session_id="named")
    _, waiting = client.post([user("one")], "first")
    begun = [user("two"), assistant("to be gone on with")]  # says nothing about the answer before
    ids = [client.post(begun, text, alternative=True)[1] for text in ("left", "right")]
    assert store.turns.get(waiting).next_state is None
    client.post([user("two"), assistant("something else altogether"), user("wrong!")])
    assert store.turns.get(waiting).next_state is None
    assert [store.turns.get(turn_id).next_state for turn_id in ids] == [None, None]


class RefusingEngine:
    """The real engine, which stops taking requests after `room` of them."""

    def __init__(self, engine: Engine, room: int) -> None:
        self._engine = engine
        self._room = room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, request: GenerationRequest, sink: Sink) -> Handle:
        self._room -= 1
        if self._room < 0:
            raise EngineStopped("The engine is stopped; the daemon restarts it. Send the request again.")
        return self._engine.submit(request, sink)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_if_the_engine_refuses_one_none_goes_on_and_each_is_stored(tmp_path: Path, path: str) -> None:
    with live_server(tmp_path) as live:
        live.services.engine = RefusingEngine(live.services.engine, room=2)  # type: ignore[assignment]
        body = {"model": "clawd", "messages": QUESTION, "prompt": "Once", "n": 4, "max_tokens": 2000}
        reply = live.http.post(path, json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_stopped")
        assert live.wait_until_idle(2) and live.settled()
        (session,) = live.store.sessions.all()
        reasons = [live.store.turns.get(i).reason for i in live.store.turns.ids_of_session(session.id)]
        assert reasons == ["aborted", "aborted", "error", "error"]
        assert live.store.verify() == []
