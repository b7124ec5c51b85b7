"""The engine on the tiny random model: scheduling, swapping, cancelling, dying."""

from __future__ import annotations

import dataclasses
import logging
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from clawd.config import ModelSettings
from clawd.errors import AdapterRejected, ContextOverflow, EngineStopped, ModelError
from clawd.server.engine.engine import Engine
from clawd.server.engine.types import AdapterVersion, Event, Finished, Priority, SamplingParams, Token
from tests.server.engine.asking import GREEDY, Answer, adapter, ask, bare_told, ids, running, until
from tests.tiny_gguf import TINY

PROMPT = [1, 50, 60, 70, 80, 90]
ENDLESS = SamplingParams(seed=5, temperature=1.0)


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Iterator[Engine]:
    with running(tiny_model) as started:
        yield started


def long_prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 260, length).tolist()


def endless(engine: Engine, length: int = 400, **fields: object) -> Answer:
    """A request whose answer takes a while: the tiny model doesn't end by itself."""
    return ask(engine, PROMPT, length, sampling=ENDLESS, **fields)


def test_an_answer_streams_token_by_token_and_ends_once(engine: Engine) -> None:
    answer = ask(engine, PROMPT, 12)
    finished = answer.wait()
    assert finished.response_tokens == len(answer.tokens) == 12
    assert finished.prompt_tokens == len(PROMPT)
    assert finished.reason == "length"
    assert answer.text == engine.vocabulary.text(answer.ids)


def test_a_repeated_prompt_is_remembered_and_answered_alike(engine: Engine) -> None:
    prompt = long_prompt(1, 60)
    first, second = ask(engine, prompt), None
    first.wait()
    second = ask(engine, prompt)
    assert second.wait().cached_tokens == 59
    assert second.ids == first.ids


def test_eight_equal_prompts_at_once_are_read_once_and_answered_each_by_itself(tiny_model: Path) -> None:
    prompt = long_prompt(2, 300)
    with running(tiny_model) as engine:
        together = [ask(engine, prompt, 20, sampling=SamplingParams(seed=seed, temperature=1.2)) for seed in range(8)]
        for answer in together:
            answer.wait()
        assert engine.stats().prompt_tokens == 300 + 7, "the last token is read for each"
    assert len({tuple(answer.ids) for answer in together}) == 8
    for answer in together:
        expected = bare_told(tiny_model, prompt, answer.ids)
        assert [token.logprob for token in answer.tokens] == pytest.approx(expected, abs=0.05)


def test_the_same_seed_gives_the_same_answer(engine: Engine) -> None:
    sampling = SamplingParams(seed=11, temperature=1.2, top_p=0.9)
    assert ids(engine, PROMPT, 30, sampling=sampling) == ids(engine, PROMPT, 30, sampling=sampling)
    other = dataclasses.replace(sampling, seed=12)
    assert ids(engine, PROMPT, 30, sampling=sampling) != ids(engine, PROMPT, 30, sampling=other)


def test_answers_do_not_depend_on_who_else_is_served(engine: Engine) -> None:
    prompts = [long_prompt(seed, 20 + 7 * seed) for seed in range(12)]
    alone = [ids(engine, prompt, 20) for prompt in prompts]
    with running(engine.model_info.path, prompt_chunk=16, prompt_chunk_shared=8) as other:
        together = [ask(other, prompt, 20) for prompt in prompts]
        for answer, expected in zip(together, alone, strict=True):
            answer.wait()
            assert answer.ids == expected


def test_a_stop_string_ends_the_answer_and_is_not_shown(engine: Engine) -> None:
    free = ask(engine, PROMPT, 20)
    free.wait()
    middle = free.text[4:7]
    stopped = ask(engine, PROMPT, 20, stop=(middle,))
    assert stopped.wait().reason == "stop"
    assert stopped.text == free.text[: free.text.index(middle)]
    assert stopped.ids == free.ids[: len(stopped.ids)]
    assert middle in engine.vocabulary.text(stopped.ids), "the ids are as sampled, the stop string's included"
    assert middle not in engine.vocabulary.text(stopped.ids[:-1]), "it stops exactly there"


def test_top_alternatives_are_told(engine: Engine) -> None:
    answer = ask(engine, PROMPT, 5, sampling=SamplingParams(temperature=0, top_logprobs=3))
    answer.wait()
    for token in answer.tokens:
        assert len(token.alternatives) == 3
        assert (token.alternatives[0].id, token.alternatives[0].logprob) == (token.id, token.logprob)


def test_a_prompt_longer_than_the_context_is_refused_before_anything_is_read(engine: Engine) -> None:
    steps = engine.stats().steps
    with pytest.raises(ContextOverflow) as caught:
        ask(engine, [5] * engine.context)
    assert (caught.value.prompt_tokens, caught.value.context_tokens) == (512, 512)
    assert "512" in str(caught.value)
    assert engine.stats().steps == steps
    with pytest.raises(ValueError, match="at least one"):
        ask(engine, [])


def test_the_longest_answer_is_what_fits(engine: Engine) -> None:
    answer = ask(engine, [5] * (engine.context - 3), 178_220, sampling=ENDLESS)
    assert answer.handle.request.max_new_tokens == 3
    assert answer.wait().response_tokens <= 3


def test_cancelling_ends_at_the_next_step(engine: Engine) -> None:
    answer = endless(engine)
    answer.wait_for_tokens(5)
    answer.handle.cancel()
    told = len(answer.tokens)
    finished = answer.wait()
    assert finished.reason == "cancelled"
    assert finished.response_tokens == len(answer.tokens) <= told + 50
    answer.handle.cancel()  # again: nothing happens
    assert ids(engine, PROMPT)


def test_a_waiting_request_can_be_cancelled(tiny_model: Path) -> None:
    with running(tiny_model, max_running=1) as engine:
        first = endless(engine)
        second = ask(engine, PROMPT)
        second.handle.cancel()
        assert second.wait().reason == "cancelled"
        assert second.tokens == []
        first.handle.cancel()
        first.wait()


def test_a_sink_that_raises_costs_its_own_request(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    def sink(event: Event) -> None:
        raise RuntimeError("broken")

    request = ask(engine, PROMPT, 3).handle.request
    engine.submit(request, sink)
    assert ids(engine, PROMPT)
    assert "broken" in caplog.text
    assert engine.alive


class TestVersions:
    def test_each_version_answers_its_own_and_nothing_crosses_over(self, engine: Engine, tmp_path: Path) -> None:
        versions = [None, adapter(tmp_path, TINY, 1), adapter(tmp_path, TINY, 2)]
        prompt = long_prompt(3, 40)
        cold = []
        for version in versions:
            with running(engine.model_info.path) as fresh:
                cold.append(ids(fresh, prompt, version=version))
        assert len({tuple(answer) for answer in cold}) == 3
        for _ in range(2):
            answers = [ask(engine, prompt, version=version) for version in versions]
            for answer, expected in zip(answers, cold, strict=True):
                answer.wait()
                assert answer.ids == expected

    def test_loading_changes_nothing_for_who_does_not_ask_for_it(self, engine: Engine, tmp_path: Path) -> None:
        before = ids(engine, PROMPT)
        version = adapter(tmp_path, TINY, 3)
        engine.load(version).result(10)
        assert ids(engine, PROMPT) == before
        version.gguf.unlink()  # read whole: the file may go
        assert ids(engine, PROMPT, version=version) != before
        engine.retire(version.id).result(10)

    @pytest.mark.parametrize("damage", ["missing", "empty", "junk", "half", "shape", "name"])
    def test_a_damaged_file_is_refused_and_nothing_changes(self, engine: Engine, tmp_path: Path, damage: str) -> None:
        before, loaded = ids(engine, PROMPT), engine.stats().versions_loaded
        version = adapter(tmp_path, TINY, 4)
        data = version.gguf.read_bytes()
        if damage == "missing":
            version.gguf.unlink()
        elif damage == "empty":
            version.gguf.write_bytes(b"")
        elif damage == "junk":
            version.gguf.write_bytes(b"pickle" * 100)
        elif damage == "half":
            version.gguf.write_bytes(data[: len(data) // 2])
        elif damage == "shape":
            adapter(tmp_path, dataclasses.replace(TINY, n_ff=64), 4)
        else:
            version.gguf.write_bytes(data.replace(b"blk.0.attn_q.weight.lora_a", b"blk.0.attn_x.weight.lora_a"))
        with pytest.raises(AdapterRejected, match=r"adapter file .*s4\.gguf .*\w"):
            engine.load(version).result(10)
        asked = ask(engine, PROMPT, version=version)
        finished = asked.wait()
        assert finished.reason == "error" and finished.error is not None and "s4.gguf" in finished.error
        assert engine.stats().versions_loaded == loaded
        assert ids(engine, PROMPT) == before

    def test_a_running_stream_keeps_its_version_which_is_freed_after_it(self, tiny_model: Path, tmp_path: Path) -> None:
        old, new = adapter(tmp_path, TINY, 5), adapter(tmp_path, TINY, 6)
        with running(tiny_model) as engine:
            stream = endless(engine, version=old)
            stream.wait_for_tokens(3)
            engine.load(new).result(10)
            engine.retire(old.id).result(10)
            asked = ids(engine, PROMPT, 5, version=new)
            assert engine.stats().versions_loaded == 2
            assert not stream.done
            stream.wait()
            until(lambda: engine.stats().versions_loaded == 1)
            assert ids(engine, PROMPT, 5, version=new) == asked
            assert ids(engine, PROMPT, 5, version=old) != asked  # asked for again: loaded again
        told = [token.logprob for token in stream.tokens]
        under = {version.id: bare_told(tiny_model, PROMPT, stream.ids, version) for version in (old, new)}
        assert told == pytest.approx(under[old.id], abs=0.05)
        assert told != pytest.approx(under[new.id], abs=1)

    def test_idle_versions_beyond_the_limit_are_unloaded(self, tiny_model: Path, tmp_path: Path) -> None:
        versions = [adapter(tmp_path, TINY, seed) for seed in range(10, 16)]
        with running(tiny_model, adapters_loaded=3) as engine:
            first = [ids(engine, PROMPT, version=version) for version in versions]
            until(lambda: engine.stats().versions_loaded == 3)
            assert [ids(engine, PROMPT, version=version) for version in versions] == first

    def test_two_hundred_requests_across_twenty_publications(self, tiny_model: Path, tmp_path: Path) -> None:
        versions = [adapter(tmp_path, TINY, seed) for seed in range(20, 40)]
        with running(tiny_model) as engine:
            current: AdapterVersion | None = None
            answers: list[Answer] = []
            for publication in versions:
                answers += [ask(engine, long_prompt(i, 80), 20, version=current) for i in range(5)]
                engine.load(publication).result(10)
                engine.warm(publication, current, min_tokens=32).result(30)
                answers += [ask(engine, long_prompt(i, 80), 20, version=current) for i in range(5)]
                if current is not None:
                    engine.retire(current.id)
                current = publication
            assert {answer.wait().reason for answer in answers} <= {"stop", "length"}
            assert len(answers) == 200
            until(lambda: engine.stats().versions_loaded == 1)


class TestWarming:
    def test_what_was_warmed_is_not_read_again_after_the_flip(self, tiny_model: Path, tmp_path: Path) -> None:
        with running(tiny_model) as engine:
            old, new = adapter(tmp_path, TINY, 7), adapter(tmp_path, TINY, 8)
            system = long_prompt(1, 100)
            conversations = [[*system, *long_prompt(seed, 30)] for seed in (2, 3)]
            short = long_prompt(4, 20)
            for prompt in [*conversations, short]:
                ids(engine, prompt, 4, version=old)
            cold = []
            with running(tiny_model) as fresh:
                cold = [ids(fresh, prompt, 4, version=new) for prompt in conversations]
            engine.load(new).result(10)
            warmed = engine.warm(new, old, min_tokens=64).result(30)
            assert 160 <= warmed <= 170  # the system prompt once
            for prompt, expected in zip(conversations, cold, strict=True):
                answer = ask(engine, prompt, 4, version=new)
                assert answer.wait().cached_tokens >= 129
                assert answer.ids == expected
            unwarmed = ask(engine, short, 4, version=new)
            assert unwarmed.wait().cached_tokens == 0

    def test_a_running_conversation_is_warmed_too(self, tiny_model: Path, tmp_path: Path) -> None:
        with running(tiny_model) as engine:
            new = adapter(tmp_path, TINY, 9)
            stream = endless(engine, 300)
            stream.wait_for_tokens(120)
            assert engine.warm(new, None, min_tokens=100).result(60) >= 100

    def test_the_limit_on_tokens_holds(self, tiny_model: Path, tmp_path: Path) -> None:
        with running(tiny_model) as engine:
            for seed in range(3):
                ids(engine, long_prompt(seed, 100), 2)
            assert engine.warm(adapter(tmp_path, TINY, 9), None, min_tokens=30, max_tokens=150).result(30) <= 150

    def test_nothing_to_warm_is_done_at_once_and_a_bad_adapter_is_refused(self, engine: Engine, tmp_path: Path) -> None:
        version = adapter(tmp_path, TINY, 9)
        assert engine.warm(version, adapter(tmp_path, TINY, 99), min_tokens=10).result(10) == 0
        ids(engine, long_prompt(8, 100), 2)
        version = dataclasses.replace(version, id="bad")
        version.gguf.write_bytes(b"bad")
        with pytest.raises(AdapterRejected):
            engine.warm(version, None, min_tokens=10).result(10)

    def test_warming_can_be_cancelled(self, tiny_model: Path, tmp_path: Path) -> None:
        with running(tiny_model, prompt_chunk_shared=8) as engine:
            for seed in range(4):
                ids(engine, long_prompt(seed, 100), 2)
            stream = endless(engine)
            future = engine.warm(adapter(tmp_path, TINY, 9), None, min_tokens=10)
            assert future.cancel()
            stream.handle.cancel()
            until(lambda: engine.stats().waiting == engine.stats().paused == engine.stats().running == 0)
            assert ids(engine, PROMPT)


class TestScarcity:
    def test_background_stands_back_for_people(self, tiny_model: Path) -> None:
        with running(tiny_model) as engine:
            judge = endless(engine, priority=Priority.BACKGROUND)
            judge.wait_for_tokens(3)
            person = ask(engine, long_prompt(2, 200), 20)
            person.wait()
            during = [t for t in judge.times[: len(judge.tokens)] if person.times[0] <= t <= person.times[-1]]
            assert len(during) <= 1
            assert judge.wait().reason == "length"

    def test_the_youngest_gives_way_when_cells_run_out_and_goes_on_where_it_was(self, tiny_model: Path) -> None:
        few = ModelSettings(context=256, kv_cells=256)
        with running(tiny_model, model=few, remembered=0) as engine:
            prompts = [long_prompt(seed, 60) for seed in range(6)]
            answers = [
                ask(engine, prompt, 150, sampling=SamplingParams(seed=seed)) for seed, prompt in enumerate(prompts)
            ]
            assert [answer.wait().response_tokens for answer in answers] == [150] * 6
            assert engine.stats().prompt_tokens > 6 * 60, "somebody was read twice"
        for prompt, answer in zip(prompts, answers, strict=True):
            expected = bare_told(tiny_model, prompt, answer.ids)
            assert [token.logprob for token in answer.tokens] == pytest.approx(expected, abs=0.05)

    def test_as_long_as_the_context_among_others(self, tiny_model: Path) -> None:
        with running(tiny_model) as engine:
            answers = [ask(engine, long_prompt(seed, 100), 50, sampling=ENDLESS) for seed in range(6)]
            answers.append(ask(engine, long_prompt(9, engine.context - 1)))
            assert {answer.wait().reason for answer in answers} <= {"stop", "length"}


class TestEnding:
    def test_stopping_lets_requests_end_within_the_grace(self, tiny_model: Path) -> None:
        with running(tiny_model) as engine:
            answer = endless(engine, 50)
            engine.stop(30)
            assert answer.wait().reason == "length"
            assert not engine.alive
            with pytest.raises(EngineStopped):
                ask(engine, PROMPT)
            with pytest.raises(EngineStopped):
                engine.load(AdapterVersion("x", "a", 1, tiny_model))

    def test_after_the_grace_requests_are_cut_and_told(self, tiny_model: Path) -> None:
        with running(tiny_model, max_running=1) as engine:
            answers = [endless(engine), ask(engine, PROMPT)]
            engine.stop(0)
            for answer in answers:
                finished = answer.wait()
                assert finished.reason == "error" and finished.error is not None and "again" in finished.error

    def test_a_failing_decode_ends_every_request_and_the_engine_says_so(
        self, tiny_model: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with running(tiny_model) as engine:
            answers = [endless(engine), endless(engine)]
            answers[0].wait_for_tokens(2)
            # A token outside of the vocabulary: llama.cpp refuses the batch.
            answers.append(ask(engine, [10**6]))
            for answer in answers:
                finished = answer.wait()
                assert finished.reason == "error"
            until(lambda: not engine.alive)
            with pytest.raises(EngineStopped):
                ask(engine, PROMPT)
        assert "the engine dies" in caplog.text

    def test_a_handle_of_a_dead_engine_is_harmless(self, tiny_model: Path) -> None:
        with running(tiny_model) as engine:
            answer = ask(engine, PROMPT)
            engine.stop(5)
            answer.handle.cancel()
            engine.stop(5)
            assert isinstance(answer.wait(), Finished)


def test_fifty_streams_half_of_them_cut(tiny_model: Path) -> None:
    chance = random.Random(1)
    with running(tiny_model) as engine:
        answers = [ask(engine, long_prompt(i % 7, 40 + i), 60, sampling=SamplingParams(seed=i)) for i in range(50)]
        for answer in chance.sample(answers, 25):
            answer.wait_for_tokens(chance.randrange(4))
            answer.handle.cancel()
        for answer in answers:
            answer.wait()
        assert ids(engine, PROMPT)
        until(lambda: engine.stats().running == engine.stats().waiting == 0, seconds=1)
        steps = engine.stats().steps
        assert engine.stats().steps == steps


def test_a_missing_model_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model file"), running(tmp_path / "none.gguf"):
        pass


def test_llama_cpps_lines_go_to_logging_and_not_to_stderr(
    tiny_model: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "llama.cpp")
    with running(tiny_model) as engine:
        ids(engine, PROMPT, 3)
    assert any(record.name == "llama.cpp" and "KV buffer" in record.message for record in caplog.records)
    assert capfd.readouterr() == ("", "")


def test_tokens_are_events_with_text_and_logprob(engine: Engine) -> None:
    answer = ask(engine, PROMPT, 4, sampling=GREEDY)
    answer.wait()
    assert all(isinstance(event, Token) and event.logprob <= 0 for event in answer.events[:-1])
