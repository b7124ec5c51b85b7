"""The engine on the embedded model: what is told is what the model computed, whatever is swapped around it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from clawd.errors import ContextOverflow
from clawd.model.prompt import PromptRenderer
from clawd.server.engine.engine import Engine
from clawd.server.engine.types import AdapterVersion, SamplingParams
from tests.server.engine.asking import (
    COMPARED,
    Answer,
    adapter,
    ask,
    assert_same,
    bare_logprobs,
    bare_told,
    ids,
    running,
    until,
)
from tests.tiny_gguf import SMOLLM2

TOLERANCE = 1e-3  # nats


@pytest.fixture(scope="module")
def engine(embedded_model: Path) -> Iterator[Engine]:
    with running(embedded_model) as started:
        yield started


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[AdapterVersion]:
    folder = tmp_path_factory.mktemp("adapters")
    return [adapter(folder, SMOLLM2, seed, strength=1) for seed in (1, 2)]


@pytest.fixture(scope="module")
def cold(embedded_model: Path, versions: list[AdapterVersion]) -> dict[str | None, Answer]:
    """Greedy answers to one question under the base and each version, each from an engine of its own."""
    answers = {}
    for version in (None, *versions):
        with running(embedded_model) as fresh:
            answer = ask(fresh, question(fresh), 8, version=version, sampling=COMPARED)
            answer.wait()
            answers[version.id if version else None] = answer
    first = [answer.tokens[0].logprob for answer in answers.values()]
    assert np.ptp(first) > 0.2, "the adapters change what the model computes"
    assert min(abs(first[0] - first[1]), abs(first[0] - first[2]), abs(first[1] - first[2])) > 0.1
    return answers


def question(engine: Engine, text: str = "What is the capital of France?") -> list[int]:
    return PromptRenderer.of(engine.vocabulary).prompt_ids([{"role": "user", "content": text}])


def told(answer: Answer) -> list[float]:
    return [token.logprob for token in answer.tokens]


def test_the_model_answers_and_ends_with_its_end_token(engine: Engine) -> None:
    answer = ask(engine, question(engine, "What is the capital of France? Answer with one word."), 60)
    assert answer.wait().reason == "stop"
    assert engine.vocabulary.is_end(answer.ids[-1])
    assert answer.tokens[-1].text == ""
    assert answer.wait().response_tokens == len(answer.ids)


def test_ids_are_kept_as_sampled_even_if_their_text_has_others(engine: Engine) -> None:  # T1
    prompt = question(engine, "Invent new words.")
    answer = ask(engine, prompt, 60, sampling=SamplingParams(temperature=2.0, seed=1))
    answer.wait()
    assert engine.vocabulary.tokenise(answer.text) != answer.ids, "a text that encodes to other ids"
    # The next turn continues on these very ids: all but the last token of the answer is remembered.
    following = ask(engine, [*prompt, *answer.ids, 198], 1)
    assert following.wait().cached_tokens == len(prompt) + len(answer.ids) - 1


def test_logprobs_under_top_p_are_the_full_vocabularys(engine: Engine, embedded_model: Path) -> None:  # T3
    prompt = question(engine, "Tell me a story.")
    answer = ask(engine, prompt, 24, sampling=SamplingParams(top_p=0.5, seed=3))
    answer.wait()
    expected = bare_told(embedded_model, prompt, answer.ids)
    assert told(answer) == pytest.approx(expected, abs=TOLERANCE)
    assert np.exp(told(answer) - expected).mean() == pytest.approx(1, abs=TOLERANCE)
    # All were in the nucleus, whose own probabilities would be higher.
    assert min(told(answer)) < np.log(0.5)


def test_greedy_logprobs_equal_a_log_softmax_over_the_raw_logits(engine: Engine, embedded_model: Path) -> None:  # T4
    prompt = question(engine, "Name a colour.")
    answer = ask(engine, prompt, 8)
    answer.wait()
    expected = bare_logprobs(embedded_model, prompt, answer.ids)
    assert len(answer.ids) == 8
    assert answer.ids == expected.argmax(axis=1).tolist()
    assert told(answer) == pytest.approx(expected.max(axis=1), abs=1e-4)


def test_each_version_answers_as_it_would_alone(
    embedded_model: Path, versions: list[AdapterVersion], cold: dict[str | None, Answer]
) -> None:  # A1, A2
    with running(embedded_model) as engine:
        for version in (versions[0], versions[1], None):
            expected = cold[version.id if version else None]
            first = ask(engine, question(engine), 8, version=version, sampling=COMPARED)
            assert first.wait().cached_tokens == 0
            assert first.ids == expected.ids
            assert told(first) == pytest.approx(told(expected), abs=1e-4)
        for version in (versions[0], versions[1], None):
            again = ask(engine, question(engine), 8, version=version, sampling=COMPARED)
            assert again.wait().cached_tokens > 0
            assert_same(again, cold[version.id if version else None], tolerance=0.3)


def test_a_slow_stream_ends_on_its_version_while_another_is_published(
    embedded_model: Path, versions: list[AdapterVersion], cold: dict[str | None, Answer]
) -> None:  # A3
    old, new = versions
    with running(embedded_model) as engine:
        prompt = question(engine, "Tell me about the sea.")
        # Greedy, not seeded: a seeded token has a companion in its batch, and llama.cpp multiplies LoRA factors by
        # another kernel for two columns than for one.
        stream = ask(engine, prompt, 100, version=old, sampling=SamplingParams(temperature=0))
        stream.wait_for_tokens(2)
        engine.load(new).result(30)
        engine.retire(old.id).result(30)
        following = ask(engine, question(engine), 8, version=new, sampling=COMPARED)
        following.wait()
        assert following.ids == cold[new.id].ids
        assert not stream.done
        assert engine.stats().versions_loaded == 2
        stream.wait()
        until(lambda: engine.stats().versions_loaded == 1)
    assert told(stream) == pytest.approx(bare_told(embedded_model, prompt, stream.ids, old), abs=TOLERANCE)


def test_two_hundred_requests_across_twenty_publications(embedded_model: Path, tmp_path: Path) -> None:  # A4
    publications = [adapter(tmp_path, SMOLLM2, seed, strength=0.1, rank=1) for seed in range(20)]
    with running(embedded_model) as engine:
        current: AdapterVersion | None = None
        answers: list[Answer] = []
        for new in publications:
            for number in range(10):
                answers.append(ask(engine, [1, 4093, 198, 57 + number], 3, version=current))
                if number == 4:
                    loaded = engine.load(new)
            loaded.result(30)
            if current is not None:
                engine.retire(current.id)
            current = new
        assert {answer.wait().reason for answer in answers} <= {"stop", "length"}
        assert len(answers) == 200
        until(lambda: engine.stats().versions_loaded == 1)


def test_the_next_request_works_after_fifty_of_which_half_were_cut(engine: Engine) -> None:  # E2
    chance = random.Random(2)
    answers = [ask(engine, [1, 4093, 198, 57 + i], 12, sampling=SamplingParams(seed=i)) for i in range(50)]
    for answer in chance.sample(answers, 25):
        answer.wait_for_tokens(chance.randrange(3))
        answer.handle.cancel()
    for answer in answers:
        answer.wait()
    until(lambda: engine.stats().running == engine.stats().waiting == 0, seconds=1)
    assert ids(engine, question(engine), 3)


def test_limits_of_the_context(engine: Engine) -> None:  # E8, E12
    asked = ask(engine, question(engine), 178_220)
    assert asked.handle.request.max_new_tokens == 8192 - len(question(engine))
    asked.handle.cancel()
    asked.wait()
    steps = engine.stats().steps
    with pytest.raises(ContextOverflow) as caught:
        ask(engine, [198] * 9000)
    assert (caught.value.prompt_tokens, caught.value.context_tokens) == (9000, 8192)
    assert engine.stats().steps == steps
