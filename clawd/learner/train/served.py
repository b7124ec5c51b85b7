"""What llama.cpp makes of an adapter: the child that compares the served distributions with the trainer's.

    python -m clawd.learner.train.served QUESTION.npz BASE.gguf ADAPTER.gguf

A process of its own, so that a crash in llama.cpp costs an answer, not the update. Prints one JSON object of mean KL
divergences per token, in nats. Loads no torch.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from clawd.lifeline import die_with_parent

Logprobs = NDArray[np.float64]


class Reader:
    """A loaded model with one adapter that can be switched on and off. Released when the process ends."""

    def __init__(self, base: Path, adapter: Path, context: int, threads: int) -> None:
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        model_params.use_extra_bufts = (
            False  # weight repacking: what crashes on some CPUs, and no gain for so few tokens
        )
        self.model = llama_cpp.llama_model_load_from_file(str(base).encode(), model_params)
        if not self.model:
            raise RuntimeError(f"llama.cpp can't load {base}")
        self.adapter = llama_cpp.llama_adapter_lora_init(self.model, str(adapter).encode())
        if not self.adapter:
            raise RuntimeError(f"llama.cpp can't load {adapter}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = context
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp can't make a context")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def switch(self, on: bool) -> None:
        adapters = (llama_cpp.llama_adapter_lora_p_ctypes * 1)(self.adapter)
        scales = (ctypes.c_float * 1)(1.0)
        if llama_cpp.llama_set_adapters_lora(self.context, adapters, int(on), scales) != 0:
            raise RuntimeError("llama.cpp refuses the adapter")

    def logprobs(self, ids: NDArray[np.int64], last: int) -> Logprobs:
        """(last, V): the distributions after the last positions of `ids`."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for position, token in enumerate(ids):
            batch.token[position] = int(token)
            batch.pos[position] = position
            batch.n_seq_id[position] = 1
            batch.seq_id[position][0] = 0
            batch.logits[position] = position >= len(ids) - last
        status = llama_cpp.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode ended with status {status}")
        rows = [self._row(position) for position in range(len(ids) - last, len(ids))]
        llama_cpp.llama_batch_free(batch)
        return log_softmax(np.stack(rows))

    def _row(self, position: int) -> Logprobs:
        pointer = llama_cpp.llama_get_logits_ith(self.context, position)
        return np.ctypeslib.as_array(pointer, shape=(self.vocabulary,)).astype(np.float64)


def log_softmax(logits: Logprobs) -> Logprobs:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    norm: Logprobs = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return np.asarray(shifted - norm)


def mean_kl(p: Logprobs, q: Logprobs) -> float:
    """Mean over positions of KL(p ‖ q), in nats."""
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def compare(
    reader: Reader, windows: list[NDArray[np.int64]], trainer: dict[str, Logprobs], last: int
) -> dict[str, float]:
    """`trainer` holds the trainer's distributions with the adapter `on` and `off`, (windows x last, V)."""
    served = {}
    for name, on in (("off", False), ("on", True)):
        reader.switch(on)
        served[name] = np.concatenate([reader.logprobs(window, last) for window in windows])
    return {
        "mismatch_kl": mean_kl(served["on"], trainer["on"]),
        "base_mismatch_kl": mean_kl(served["off"], trainer["off"]),
        "effect_kl": mean_kl(served["on"], served["off"]),
        "trained_effect_kl": mean_kl(trainer["on"], trainer["off"]),
    }


def main(arguments: list[str]) -> int:
    question, base, adapter = (Path(argument) for argument in arguments)
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, None)
    with np.load(question) as asked:
        windows = [asked[f"window_{number}"] for number in range(int(asked["windows"]))]
        trainer = {name: asked[name].astype(np.float64) for name in ("on", "off")}
        reader = Reader(base, adapter, max(256, *(len(window) for window in windows)), int(asked["threads"]))
        answer = compare(reader, windows, trainer, int(asked["last"]))
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    die_with_parent()
    raise SystemExit(main(sys.argv[1:]))
