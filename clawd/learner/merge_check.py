"""Whether a merged model says what its base says with the adapter: a child process that asks llama.cpp.

    python -m clawd.learner.merge_check BASE.gguf ADAPTER.gguf MERGED.gguf

A process of its own, so that a crash in llama.cpp costs an answer. Prints one JSON object of mean KL divergences per
token, in nats: `mismatch_kl` (base with adapter against merged), `effect_kl` (base with adapter against without).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from clawd.learner.train.machine import training_threads
from clawd.learner.train.served import Logprobs, Reader, mean_kl
from clawd.lifeline import die_with_parent
from clawd.model.vocab import Vocabulary

TEXTS = (
    "The river rises in the mountains, and by the time it reaches the sea it has passed three cities.",
    "To bake bread, mix flour, water, salt and yeast, then let the dough rest for two hours.",
    "def mean(values):\n    return sum(values) / len(values)\n",
)
CONTEXT = 256
LAST = 16


def ids_of(base: Path) -> list[NDArray[np.int64]]:
    with Vocabulary.open(base) as vocabulary:
        return [np.array(vocabulary.tokenise(text, parse_special=False)[:CONTEXT]) for text in TEXTS]


def logprobs(reader: Reader, windows: list[NDArray[np.int64]], *, on: bool) -> Logprobs:
    reader.switch(on)
    return np.concatenate([reader.logprobs(window, min(LAST, len(window))) for window in windows])


def main(arguments: list[str]) -> int:
    base, adapter, merged = (Path(argument) for argument in arguments)
    windows = ids_of(base)
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, None)
    threads = training_threads(None)
    reader = Reader(base, adapter, CONTEXT, threads)
    with_adapter, without = logprobs(reader, windows, on=True), logprobs(reader, windows, on=False)
    of_merged = logprobs(Reader(merged, adapter, CONTEXT, threads), windows, on=False)
    answer = {"mismatch_kl": mean_kl(with_adapter, of_merged), "effect_kl": mean_kl(with_adapter, without)}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    die_with_parent()
    raise SystemExit(main(sys.argv[1:]))
