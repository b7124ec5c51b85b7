"""How fast the engine decodes, as a fraction of a bare llama.cpp loop; what key-value formats and prompt chunks cost.

Both sides run in one process on one model file with the same threads, batch, context and number format, one round of
each in turn, so that a machine whose speed drifts slows both alike (`decoding.py`). `fraction` is the median over the
rounds. Where other programs disturb the measurement, `fraction_undisturbed` says more: it compares the quickest tenth
of the steps.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from clawd.bench.decoding import BareLoop, decode_with
from clawd.bench.report import Goal, Report
from clawd.config import ModelSettings, ServerSettings, Settings
from clawd.model.embedded import embedded_model_path
from clawd.server.engine.engine import Engine
from clawd.server.engine.model import KV_TYPES, LoadedModel
from clawd.server.engine.scheduler import Remove, Row

STREAMS = (1, 8)
GOAL_AT_ONE_STREAM = 0.95
CHUNKS = (16, 32, 64, 128, 256)
CHUNK_ROUNDS = 5


def run(model: Path | None = None, *, quick: bool = False, command: str = "clawd bench decode") -> Report:
    """Measure with `model`, by default the embedded one. `quick`: fewer rounds, no comparison of key-value formats."""
    path = model or embedded_model_path()
    tokens, rounds = (32, 5) if quick else (48, 15)
    rows: list[dict[str, Any]] = []
    goals = []
    engine = Engine(path, Settings())
    bare = BareLoop(path, engine)
    engine.start()
    try:
        for streams in STREAMS:
            row = _compare(bare, engine, streams, tokens, rounds)
            rows.append(row)
            if streams == 1:
                goals.append(Goal("decode_fraction_1_stream", row["fraction"], GOAL_AT_ONE_STREAM, "higher"))
    finally:
        engine.close()
        bare.close()
    if not quick:
        rows += [_apart(_measure_format, path, kv_type) for kv_type in KV_TYPES]
        rows += measure_chunks(path)
    return Report("decode", command, rows, goals)


def _prompts(engine: Engine, count: int) -> list[list[int]]:
    return [
        engine.vocabulary.tokenise(
            f"<|im_start|>user\nWrite a long story about {i + 2} ships at sea.<|im_end|>\n<|im_start|>assistant\n",
            parse_special=True,
        )
        for i in range(count)
    ]


def _compare(bare: BareLoop, engine: Engine, streams: int, tokens: int, rounds: int) -> dict[str, Any]:
    prompts = _prompts(engine, streams)
    bare.decode(prompts, 8)
    decode_with(engine, prompts, 8)
    pairs = [(bare.decode(prompts, tokens), decode_with(engine, prompts, tokens)) for _ in range(rounds)]
    speeds = [(streams / statistics.fmean(a), streams / statistics.fmean(b)) for a, b in pairs]
    quickest_bare, quickest_engine = (np.quantile([t for pair in pairs for t in pair[side]], 0.1) for side in (0, 1))
    return {
        "what": "decode",
        "streams": streams,
        "bare_tokens_per_s": round(statistics.median(speed[0] for speed in speeds), 1),
        "engine_tokens_per_s": round(statistics.median(speed[1] for speed in speeds), 1),
        "fraction": round(statistics.median(speed[1] / speed[0] for speed in speeds), 3),
        "fraction_undisturbed": round(float(quickest_bare / quickest_engine), 3),
        "fractions": [round(speed[1] / speed[0], 3) for speed in speeds],
    }


def _measure_format(path: Path, kv_type: str) -> dict[str, Any]:
    """Speed and memory of one number format of the cache, in a process of its own."""
    memory = psutil.Process().memory_info
    before = memory().rss
    engine = Engine(path, Settings(model=ModelSettings.model_validate({"kv_type": kv_type})))
    engine.start()
    try:
        ready = memory().rss
        prompt = np.random.default_rng(0).integers(100, engine.vocabulary.size, min(2048, engine.context // 2))
        started = time.perf_counter()
        decode_with(engine, [prompt.tolist()], 0)
        prompt_s = time.perf_counter() - started
        step_s = statistics.median(decode_with(engine, [prompt.tolist()], 64))
        return {
            "what": "kv_type",
            "kv_type": kv_type,
            "prompt_tokens_per_s": round(len(prompt) / prompt_s, 1),
            "decode_tokens_per_s": round(1 / step_s, 1),
            "depth_tokens": len(prompt),
            "engine_mb_above_model": round((ready - before - engine.model_info.file_size) / 1e6, 1),
            "process_mb_above_model": round((memory().rss - engine.model_info.file_size) / 1e6, 1),
        }
    finally:
        engine.close()


def measure_chunks(path: Path) -> list[dict[str, Any]]:
    """How fast prompts are read by the number of tokens per step, and how long a step is: a newcomer waits for one.

    Sizes alternate; the quickest step of each counts, so that other programs disturb it little.
    """
    server = ServerSettings(prompt_chunk=max(CHUNKS))
    model = LoadedModel.load(path, ModelSettings(), server)
    tokens = np.random.default_rng(0).integers(100, model.vocabulary.size, max(CHUNKS)).astype(np.int32)
    quickest = dict.fromkeys(CHUNKS, float("inf"))
    try:
        for _ in range(CHUNK_ROUNDS):
            for chunk in CHUNKS:
                started = time.perf_counter()
                model.decode((Row("bench", 0, tokens[:chunk], 0, samples=True),))
                quickest[chunk] = min(quickest[chunk], time.perf_counter() - started)
                model.apply((Remove(0, 0),))
    finally:
        model.close()
    return [
        {
            "what": "prompt_chunk",
            "prompt_chunk": chunk,
            "prompt_tokens_per_s": round(chunk / step_s, 1),
            "step_ms": round(1000 * step_s),
        }
        for chunk, step_s in quickest.items()
    ]


def _apart(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """In a fresh process, whose memory nothing else has touched."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report as JSON; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="clawd bench decode", description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    report = run(options.model, quick=options.quick, command="python -m clawd.bench.decode")
    print(report.to_json())
    return int(not all(goal.ok for goal in report.goals))


if __name__ == "__main__":
    raise SystemExit(main())
