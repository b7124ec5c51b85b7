"""The child that scores: reads `Questions` as JSON on stdin, prints `Answers`.

    python -m clawd.bench.personalize.scorer < QUESTIONS.json

Reads whole distributions from llama.cpp, on the served files. Loads no torch. A reply's tokens are those that its text
encodes to; a model may have sampled others for the same text, which moves the mean by little.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clawd.bench.personalize.scoring import Answers, Drift, Questions, Reply
from clawd.learner.train.served import Logprobs, log_softmax, mean_kl
from clawd.lifeline import die_with_parent
from clawd.model.llama import llama
from clawd.model.prompt import PromptRenderer
from clawd.model.vocab import Vocabulary, load_model

CONTEXT = 2048
ROOM_FOR_PROMPT = 1400  # tokens; a longer prompt loses its beginning, a longer reply its end
SHORTEST = 1  # token, of a reply that can be scored


class Reader:
    """A loaded model with adapters, one of which is on at a time. Released when the process ends."""

    def __init__(self, base: Path, adapters: Mapping[str, Path], threads: int) -> None:
        self.model = load_model(base, gpu_layers=0)
        self.adapters = {name: self._adapter(path) for name, path in adapters.items()}
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = CONTEXT
        params.n_threads = params.n_threads_batch = threads
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp can't make a context")
        self.vocabulary = Vocabulary(self.model, base)

    def _adapter(self, path: Path) -> Any:
        pointer = llama.llama_adapter_lora_init(self.model, str(path).encode())
        if not pointer:
            raise RuntimeError(f"llama.cpp can't load {path}")
        return pointer

    def switch(self, name: str | None) -> None:
        """Read under this adapter from now on; None: under the base."""
        adapters = (llama.llama_adapter_lora_p_ctypes * 1)(self.adapters[name] if name else None)
        scales = (ctypes.c_float * 1)(1.0)
        if llama.llama_set_adapters_lora(self.context, adapters, int(name is not None), scales) != 0:
            raise RuntimeError("llama.cpp refuses the adapter")

    def logprobs(self, prompt: Sequence[int], reply: Sequence[int]) -> Logprobs:
        """(T, V): the distributions from which the T tokens of `reply` would be drawn."""
        ids = [*prompt, *reply[:-1]]
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)
        batch = llama.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for position, token in enumerate(ids):
            batch.token[position], batch.pos[position], batch.n_seq_id[position] = token, position, 1
            batch.seq_id[position][0] = 0
            batch.logits[position] = position >= len(prompt) - 1
        status = llama.llama_decode(self.context, batch)
        llama.llama_batch_free(batch)
        if status != 0:
            raise RuntimeError(f"llama_decode ended with status {status}")
        return log_softmax(np.stack([self._row(place) for place in range(len(prompt) - 1, len(ids))]))

    def _row(self, position: int) -> Logprobs:
        pointer = llama.llama_get_logits_ith(self.context, position)
        return np.ctypeslib.as_array(pointer, shape=(self.vocabulary.size,)).astype(np.float64)


def answer(questions: Questions) -> Answers:
    reader = Reader(questions.base, questions.adapters, questions.threads)
    renderer = PromptRenderer.of(reader.vocabulary)
    logprobs = [_mean_logprob(reader, *_ids(renderer, reply)) for reply in questions.replies]
    neutral = [_ids(renderer, reply) for reply in questions.neutral]
    divergences = _divergences(reader, [pair for pair in neutral if pair[1]])
    nats = _held_out_nats(reader, questions.held_out)
    drift = {
        name: Drift(neutral_kl=divergences[name], perplexity_ratio=math.exp(nats[name] - nats[None]))
        for name in reader.adapters
    }
    return Answers(reply_logprobs=logprobs, drift=drift)


def _ids(renderer: PromptRenderer, reply: Reply) -> tuple[list[int], list[int]]:
    prompt = renderer.prompt_ids([{"role": "user", "content": reply.asked}])
    return prompt[-ROOM_FOR_PROMPT:], renderer.vocabulary.tokenise(reply.text)[: CONTEXT - ROOM_FOR_PROMPT]


def _mean_logprob(reader: Reader, prompt: list[int], reply: list[int]) -> float:
    """Under whichever adapter is on; of an empty reply as of one that is drawn by lot."""
    if len(reply) < SHORTEST:
        return -math.log(reader.vocabulary.size)
    logprobs = reader.logprobs(prompt, reply)
    return float(logprobs[np.arange(len(reply)), reply].mean())


def _divergences(reader: Reader, pairs: Sequence[tuple[list[int], list[int]]]) -> dict[str, float]:
    """Mean over all tokens, per adapter. Prompt by prompt, so that no more than two distributions are in memory."""
    sums = dict.fromkeys(reader.adapters, 0.0)
    for prompt, reply in pairs if reader.adapters else ():
        reader.switch(None)
        base = reader.logprobs(prompt, reply)
        for name in reader.adapters:
            reader.switch(name)
            sums[name] += mean_kl(reader.logprobs(prompt, reply), base) * len(reply)
    reader.switch(None)
    tokens = sum(len(reply) for _, reply in pairs)
    return {name: total / tokens for name, total in sums.items()} if tokens else sums


def _held_out_nats(reader: Reader, text: str) -> dict[str | None, float]:
    """Mean negative log-probability per token, of the base (None) and of each adapter."""
    ids = reader.vocabulary.tokenise(text)[:CONTEXT]
    nats: dict[str | None, float] = {}
    for name in (None, *reader.adapters) if reader.adapters else ():
        reader.switch(name)
        nats[name] = -_mean_logprob(reader, ids[:1], ids[1:])
    reader.switch(None)
    return nats


def main() -> int:
    print(answer(Questions.model_validate_json(sys.stdin.read())).model_dump_json())
    return 0


if __name__ == "__main__":
    die_with_parent()
    raise SystemExit(main())
