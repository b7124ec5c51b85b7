"""The child that has versions answer: greedy answers of the served files to a few prompts, all prompts at a time.

    python -m clawd.learner.train.probe < QUESTION.json

`Question` in, `Answers` out, as JSON. A process of its own, so that a crash in llama.cpp costs an answer, not
the update. Loads no torch.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from clawd.lifeline import die_with_parent
from clawd.model.llama import llama
from clawd.model.vocab import Vocabulary, load_model

STEP_TOKENS = 512


class Asked(BaseModel):
    adapter: Path | None  # none: the bare base
    prompts: list[list[int]]


class Question(BaseModel):
    base: Path
    asked: list[Asked]
    most: int  # tokens of an answer
    threads: int


class Answer(BaseModel):
    ids: list[int]  # without the end token
    text: str
    ended: bool  # an end token came before the limit


class Answers(BaseModel):
    answers: list[list[Answer]]  # as `Question.asked`


class Speaker:
    """A loaded model. Released when the process ends."""

    def __init__(self, base: Path, sequences: int, tokens: int, threads: int) -> None:
        """`tokens`: of all prompts and answers that are in memory at a time."""
        self.model = load_model(base, use_extra_bufts=False, gpu_layers=0)  # as the validation loads it
        self.vocabulary = Vocabulary(self.model, base)
        params = llama.llama_context_default_params()
        params.n_seq_max = sequences
        params.n_ctx = tokens
        params.n_batch = params.n_ubatch = STEP_TOKENS
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = True
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp can't make a context")

    def use(self, adapter: Path | None) -> None:
        pointer = llama.llama_adapter_lora_init(self.model, str(adapter).encode()) if adapter else None
        if adapter and not pointer:
            raise RuntimeError(f"llama.cpp can't load {adapter}")
        adapters = (llama.llama_adapter_lora_p_ctypes * 1)(pointer)
        scales = (ctypes.c_float * 1)(1.0)
        if llama.llama_set_adapters_lora(self.context, adapters, int(adapter is not None), scales) != 0:
            raise RuntimeError("llama.cpp refuses the adapter")
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)

    def answer(self, prompts: Sequence[list[int]], most: int) -> list[Answer]:
        """The most likely answer to each prompt."""
        found: list[list[int]] = [[] for _ in prompts]
        newest = self._read(prompts)
        running = list(range(len(prompts)))
        ended: set[int] = set()
        while True:
            ended |= {index for index in running if self.vocabulary.is_end(newest[index])}
            running = [index for index in running if index not in ended]
            for index in running:
                found[index].append(newest[index])
            running = [index for index in running if len(found[index]) < most]
            if not running:
                break
            fed = [(newest[index], len(prompts[index]) + len(found[index]) - 1, index, True) for index in running]
            newest |= dict(zip(running, self._decode(fed), strict=True))
        return [
            Answer(ids=ids, text=self.vocabulary.text(ids), ended=index in ended) for index, ids in enumerate(found)
        ]

    def _read(self, prompts: Sequence[list[int]]) -> dict[int, int]:
        """The first token of each answer."""
        fed = [
            (token, position, index, position == len(prompt) - 1)
            for index, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        first: list[int] = []
        for start in range(0, len(fed), STEP_TOKENS):
            first += self._decode(fed[start : start + STEP_TOKENS])
        return dict(enumerate(first))

    def _decode(self, fed: Sequence[tuple[int, int, int, bool]]) -> list[int]:
        """(token, position, sequence, whether what follows is asked for); the most likely ones that follow."""
        batch = llama.llama_batch_init(len(fed), 0, 1)
        batch.n_tokens = len(fed)
        for place, (token, position, sequence, is_asked) in enumerate(fed):
            batch.token[place], batch.pos[place], batch.n_seq_id[place] = token, position, 1
            batch.seq_id[place][0] = sequence
            batch.logits[place] = is_asked
        status = llama.llama_decode(self.context, batch)
        llama.llama_batch_free(batch)
        if status != 0:
            raise RuntimeError(f"llama_decode ended with status {status}")
        return [self._likeliest(place) for place, (*_, is_asked) in enumerate(fed) if is_asked]

    def _likeliest(self, place: int) -> int:
        logits = np.ctypeslib.as_array(llama.llama_get_logits_ith(self.context, place), shape=(self.vocabulary.size,))
        return int(logits.argmax())


def answer(question: Question) -> Answers:
    most_prompts = max(len(asked.prompts) for asked in question.asked)
    room = max(sum(len(prompt) + question.most for prompt in asked.prompts) for asked in question.asked)
    speaker = Speaker(question.base, most_prompts, room, question.threads)
    given = []
    for asked in question.asked:
        speaker.use(asked.adapter)
        given.append(speaker.answer(asked.prompts, question.most))
    return Answers(answers=given)


def main() -> int:
    print(answer(Question.model_validate_json(sys.stdin.read())).model_dump_json())
    return 0


if __name__ == "__main__":
    die_with_parent()
    raise SystemExit(main())
