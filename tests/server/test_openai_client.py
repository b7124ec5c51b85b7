"""The openai Python client against a real server: what its types promise is there, in chats and bare completions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion

from tests.server.live import Live, live_server

QUESTION = [{"role": "user", "content": "Tell a joke about a heron, and explain it at some length."}]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server that nobody else asks: llama.cpp rounds by who shares a batch."""
    with live_server(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture
def client(quiet: Live) -> OpenAI:
    return quiet.openai()


def chat(client: OpenAI, **more: object) -> ChatCompletion:
    given = {"model": "clawd", "messages": QUESTION, "max_tokens": 10, **more}
    return client.chat.completions.create(**given)  # type: ignore[call-overload]


def test_a_seed_gives_the_same_answer_twice_and_says_who_answered(client: OpenAI, quiet: Live) -> None:
    first, second = (chat(client, seed=23, temperature=1.2) for _ in range(2))
    assert first.choices[0].message.content == second.choices[0].message.content
    assert first.id != second.id
    fingerprint = quiet.services.versions.base_fingerprint[:12]
    assert first.system_fingerprint == second.system_fingerprint == f"{fingerprint}-base"
    one, two = (
        client.completions.create(model="clawd", prompt="Herons", seed=5, temperature=1.2, max_tokens=10)
        for _ in range(2)
    )
    assert one.choices[0].text == two.choices[0].text
    assert one.system_fingerprint == first.system_fingerprint


def test_what_was_remembered_of_a_prompt_is_told(client: OpenAI) -> None:
    usages = [chat(client, user="u").usage for _ in range(2)]
    assert usages[1] is not None and usages[1].prompt_tokens_details is not None
    assert usages[1].prompt_tokens_details.cached_tokens == usages[1].prompt_tokens - 1
    prompt = "A heron is a long-legged, long-necked, freshwater and coastal bird."
    counted = [client.completions.create(model="clawd", prompt=prompt, max_tokens=2).usage for _ in range(2)]
    details = counted[1].prompt_tokens_details  # type: ignore[union-attr]
    cached = details["cached_tokens"] if isinstance(details, dict) else details.cached_tokens
    assert cached == counted[1].prompt_tokens - 1  # type: ignore[union-attr]


def test_log_probabilities_and_their_alternatives(client: OpenAI) -> None:
    choice = chat(client, logprobs=True, top_logprobs=4, temperature=0).choices[0]
    assert choice.logprobs is not None and choice.logprobs.content is not None
    assert "".join(entry.token for entry in choice.logprobs.content) == choice.message.content
    for entry in choice.logprobs.content:
        assert len(entry.top_logprobs) == 4
        assert entry.top_logprobs[0].token == entry.token  # greedy
        assert entry.top_logprobs[0].logprob == entry.logprob


def test_a_list_of_stops(client: OpenAI) -> None:
    whole = chat(client, temperature=0, max_tokens=30).choices[0].message.content or ""
    early, late = whole[8:12], whole[20:24]
    choice = chat(client, temperature=0, max_tokens=30, stop=[late, early]).choices[0]
    assert choice.message.content == whole[: min(whole.index(early), whole.index(late))]
    assert choice.finish_reason == "stop"


def test_alternatives_with_their_scores_in_a_stream(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="clawd",
        messages=QUESTION,  # type: ignore[arg-type]
        n=2,
        max_tokens=6,
        temperature=1.0,
        seed=1,
        logprobs=True,
        stream=True,
    )
    texts, scored = ["", ""], ["", ""]
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.logprobs and choice.logprobs.content:
                scored[choice.index] += "".join(entry.token for entry in choice.logprobs.content)
    assert texts == scored and all(texts)
