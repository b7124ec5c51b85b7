"""How much likelier held-out replies that satisfy the user have become than ones that don't.

`gain = (mean(good) - mean(bad)) under the version - (mean(good) - mean(bad)) under the base`, where each term is the
mean log-probability per token of a reply, in nats, read from llama.cpp itself on the served files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clawd.bench.demo.persona import HELD_OUT
from clawd.learner.train.served import Reader
from clawd.model.prompt import PromptRenderer
from clawd.model.vocab import Vocabulary

SCORING_CONTEXT = 512


@dataclass(frozen=True)
class Preference:
    """Mean log-probability per token, nats."""

    satisfying: float
    other: float

    @property
    def margin(self) -> float:
        return self.satisfying - self.other


@dataclass(frozen=True)
class Gain:
    base: Preference
    version: Preference

    @property
    def nats(self) -> float:
        return self.version.margin - self.base.margin


def measure(base: Path, adapter: Path, threads: int) -> Gain:
    """Score the held-out replies with the adapter off and on."""
    with Vocabulary.open(base) as vocabulary:
        triples = held_out_ids(PromptRenderer.of(vocabulary))
    reader = Reader(base, adapter, SCORING_CONTEXT, threads)
    preferences = []
    for on in (False, True):
        reader.switch(on)
        satisfying = [_mean_logprob(reader, prompt, good) for prompt, good, _ in triples]
        other = [_mean_logprob(reader, prompt, bad) for prompt, _, bad in triples]
        preferences.append(Preference(float(np.mean(satisfying)), float(np.mean(other))))
    return Gain(*preferences)


def held_out_ids(renderer: PromptRenderer) -> list[tuple[list[int], list[int], list[int]]]:
    """The held-out triples as token ids: the question's prompt, the reply that satisfies, the one that doesn't."""
    tokenise = renderer.vocabulary.tokenise
    return [
        (renderer.prompt_ids([{"role": "user", "content": question}]), tokenise(good), tokenise(bad))
        for question, good, bad in HELD_OUT
    ]


def _mean_logprob(reader: Reader, prompt: list[int], reply: list[int]) -> float:
    """Mean of log p(reply token | what stands before it)."""
    fed = np.asarray(prompt + reply[:-1], dtype=np.int64)
    logprobs = reader.logprobs(fed, len(reply))
    return float(logprobs[np.arange(len(reply)), reply].mean())
