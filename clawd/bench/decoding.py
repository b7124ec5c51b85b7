"""Two ways to decode the same prompts in this process: a bare llama.cpp loop, which is the limit, and the engine.

The bare loop decodes, takes the largest logit and goes on: no log-probabilities, no text, no queue. It is shaped like
the engine that it is compared with: same model file, threads, batch, context and number format.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clawd.model.llama import llama
from clawd.model.vocab import load_model
from clawd.server.engine.engine import Engine
from clawd.server.engine.model import KV_TYPES
from clawd.server.engine.types import AdapterVersion, Event, Finished, GenerationRequest, SamplingParams


class BareLoop:
    """The least that decodes: llama.cpp's batch, one call per step, the largest logit. Shaped like `engine`."""

    def __init__(self, path: Path, engine: Engine) -> None:
        shape = engine.shape
        self._model = load_model(path)
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = shape.cells, shape.sequences, True
        params.n_batch = params.n_ubatch = shape.rows
        params.n_outputs_max = shape.sequences
        params.n_threads = params.n_threads_batch = shape.threads
        params.type_k = params.type_v = KV_TYPES[shape.kv_type]
        self._context = llama.llama_init_from_model(self._model, params)
        self._batch = llama.llama_batch_init(shape.rows, 0, 1)
        self._size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model))

    def use_adapter(self, path: Path) -> None:
        """Decode with this LoRA from now on."""
        pointer = llama.llama_adapter_lora_init(self._model, str(path).encode())
        if not pointer:
            raise RuntimeError(f"the bare loop can't load {path}")
        pointers, scales = (llama.llama_adapter_lora_p_ctypes * 1)(pointer), (ctypes.c_float * 1)(1.0)
        llama.llama_set_adapters_lora(self._context, pointers, 1, scales)  # freed with the model

    def decode(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[float]:
        """Answer `prompts` in one batch, `tokens` each; returns the seconds of each step, the prompts not counted."""
        llama.llama_memory_clear(llama.llama_get_memory(self._context), False)
        newest = []
        for sequence, prompt in enumerate(prompts):
            self._step([(token, at, sequence) for at, token in enumerate(prompt)])
            newest.append(self._largest(len(prompt) - 1))
        times = [time.perf_counter()]
        for step in range(tokens):
            self._step([(newest[s], len(prompts[s]) + step, s) for s in range(len(prompts))])
            newest = [self._largest(sequence) for sequence in range(len(prompts))]
            times.append(time.perf_counter())
        steps: list[float] = np.diff(times).tolist()
        return steps

    def close(self) -> None:
        llama.llama_batch_free(self._batch)
        llama.llama_free(self._context)
        llama.llama_model_free(self._model)

    def _step(self, rows: Sequence[tuple[int, int, int]]) -> None:
        batch = self._batch
        batch.n_tokens = len(rows)
        last = {sequence: i for i, (_, _, sequence) in enumerate(rows)}
        for i, (token, position, sequence) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = int(last[sequence] == i)
        if llama.llama_decode(self._context, batch) != 0:
            raise RuntimeError("the bare loop can't decode")

    def _largest(self, row: int) -> int:
        pointer = llama.llama_get_logits_ith(self._context, row)
        return int(np.ctypeslib.as_array(pointer, (self._size,)).argmax())


class _Stream:
    """Times of the tokens of one request."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.done = threading.Event()

    def sink(self, event: Event) -> None:
        if isinstance(event, Finished):
            self.done.set()
        else:
            self.times.append(time.perf_counter())


def decode_with(
    engine: Engine, prompts: Sequence[Sequence[int]], tokens: int, version: AdapterVersion | None = None
) -> list[float]:
    """As `BareLoop.decode`: seconds between the tokens of one stream while all prompts are being answered."""
    streams = [_Stream() for _ in prompts]
    for stream, prompt in zip(streams, prompts, strict=True):
        request = GenerationRequest(
            "bench", tuple(prompt), tokens + 1, version=version, sampling=SamplingParams(temperature=0)
        )
        engine.submit(request, stream.sink)
    for stream in streams:
        stream.done.wait()
    begin = max(stream.times[0] for stream in streams)
    end = min(stream.times[-1] for stream in streams)
    between: list[float] = np.diff([at for at in streams[0].times if begin <= at <= end]).tolist()
    return between
