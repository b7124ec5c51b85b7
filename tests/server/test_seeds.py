"""A seed gives the same answer twice, on a server of its own: beside others, prompts are read in other batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.live import Live, live_server


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_server(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.mark.parametrize("seed", [5, -1, 0, 2**63, -(2**70)])
def test_cold_and_remembered_it_is_the_same(quiet: Live, seed: int) -> None:
    question = f"Tell a joke about the number {seed}."
    replies = [quiet.chat(question, temperature=1.0, seed=seed, max_tokens=8).json() for _ in range(2)]
    first, second = (reply["choices"][0]["message"]["content"] for reply in replies)
    assert first == second
    assert replies[1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 20  # the second was remembered


def test_a_long_answer_is_the_same_wherever_its_cells_lie(quiet: Live) -> None:
    def answer() -> str:
        reply = quiet.chat("Write a long story about a fox.", temperature=1.0, seed=5, max_tokens=150).json()
        return str(reply["choices"][0]["message"]["content"])

    cold = answer()
    quiet.chat("The sea is wide. " * 120, max_tokens=1)
    # What comes now lies behind cells of others, so many that llama.cpp divides them among its threads.
    assert quiet.services.engine.stats().cells_used > 512
    assert [answer(), answer()] == [cold, cold]


def test_another_seed_gives_another_answer(quiet: Live) -> None:
    texts = {
        quiet.chat("Tell a story.", temperature=1.0, seed=seed, max_tokens=20).json()["choices"][0]["message"][
            "content"
        ]
        for seed in range(4)
    }
    assert len(texts) > 1
