"""Scores of replies and drift of versions, on a tiny model in the real child process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clawd.bench.personalize.baseline import neutral_material
from clawd.bench.personalize.scoring import Reply, Scorer
from clawd.errors import BenchFailed
from clawd.learner.neutral import PROMPTS
from clawd.learner.train.served import Reader, mean_kl
from clawd.model.prompt import PromptRenderer
from clawd.model.vocab import Vocabulary
from tests.adapter_files import base_of, write_version

NEUTRAL = [Reply(asked="What is a lake?", text="Water in a hollow."), Reply(asked="Why?", text="So.")]
HELD_OUT = "The road runs along the river and then turns uphill."


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    base = base_of(tiny_model, folder)
    for name, strength in (("v1", 0.3), ("v2", 1.0)):
        write_version(folder / name, base, seed=1, strength=strength)
    return {name: folder / name / "adapter.gguf" for name in ("v1", "v2")}


def test_scores_are_those_that_the_trainer_s_reader_gives(tiny_model: Path, adapters: dict[str, Path]) -> None:
    answers = Scorer(tiny_model, NEUTRAL, HELD_OUT).all(NEUTRAL, adapters)
    with Vocabulary.open(tiny_model) as vocabulary:
        renderer = PromptRenderer.of(vocabulary)
        pairs = [
            (renderer.prompt_ids([{"role": "user", "content": reply.asked}]), vocabulary.tokenise(reply.text))
            for reply in NEUTRAL
        ]
        held_out = vocabulary.tokenise(HELD_OUT)
    for name, path in adapters.items():
        reader = Reader(tiny_model, path, 512, 1)
        read = {}
        for on in (False, True):
            reader.switch(on)
            read[on] = [reader.logprobs(np.array(prompt + reply[:-1]), len(reply)) for prompt, reply in pairs]
            read[on].append(reader.logprobs(np.array(held_out[:-1]), len(held_out) - 1))
        for (_, reply), logprobs, told in zip(pairs, read[False], answers.reply_logprobs, strict=False):
            assert told == pytest.approx(logprobs[np.arange(len(reply)), reply].mean(), abs=1e-3)
        wanted = mean_kl(np.concatenate(read[True][:2]), np.concatenate(read[False][:2]))
        assert answers.drift[name].neutral_kl == pytest.approx(wanted, rel=0.02)
        nats = [-read[on][2][np.arange(len(held_out) - 1), held_out[1:]].mean() for on in (True, False)]
        assert answers.drift[name].perplexity_ratio == pytest.approx(np.exp(nats[0] - nats[1]), rel=0.01)
    assert 0 < answers.drift["v1"].neutral_kl < answers.drift["v2"].neutral_kl


def test_an_empty_reply_counts_as_one_drawn_by_lot(tiny_model: Path) -> None:
    (empty,) = Scorer(tiny_model).replies([Reply(asked="Hi", text="")])
    assert empty == pytest.approx(-np.log(269))


def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(BenchFailed, match=r"no model file .*missing\.gguf"):
        Scorer(tmp_path / "missing.gguf").replies([Reply(asked="Hi", text="Hello")])


def test_no_neutral_prompt_is_one_that_is_trained_on() -> None:
    prompts, held_out = neutral_material()
    assert len(set(prompts)) == len(prompts) == 40
    assert not set(prompts) & set(PROMPTS)
    assert len(held_out.split()) > 200
