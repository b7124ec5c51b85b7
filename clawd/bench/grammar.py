"""Two ways to make a model's answer follow a JSON schema: llguidance, and llama.cpp's own grammars.

For each schema of `grammar_cases.py`: whether it compiles, in what time, whether the texts that it allows can be
written and the others can't. For each token of those texts: what a mask over the whole vocabulary costs. Times are the
thread's own CPU time, so that other programs on the machine don't count. llama.cpp's side is llama-cpp-python's schema
converter and `llama_sampler_init_grammar`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from llama_cpp.llama_grammar import json_schema_to_gbnf

from clawd.bench.grammar_cases import CASES, Case
from clawd.bench.report import Goal, Report
from clawd.errors import SchemaRefused
from clawd.model.embedded import embedded_model_path
from clawd.model.llama import llama
from clawd.model.replies.forms import Json
from clawd.model.vocab import Vocabulary, load_model
from clawd.server.engine.constraint import Compiler, GrammarMatcher

PATIENCE_S = 20  # for one schema
GOAL_MASK_MS = 1.0
"""A tenth of what a token of a small model costs on a CPU."""


class Follower(Protocol):
    """A grammar at one place in a text."""

    def allows(self, token: int) -> bool:
        """Compute the mask of the whole vocabulary and look a token up."""

    def advance(self, token: int) -> None: ...


def run(model: Path | None = None, *, quick: bool = False, command: str = "clawd bench grammar") -> Report:
    """Measure with the vocabulary of `model`, by default the embedded one. `quick`: every third schema."""
    path = model or embedded_model_path()
    cases = CASES[::3] if quick else CASES
    Vocabulary.open(path).close()  # a file that can't be read is told here, not by process after process
    results = {name: _Results(name, path, cases) for name in BACKENDS}
    rows: list[dict[str, Any]] = []
    for place, case in enumerate(cases):
        rows.append({"schema": case.name, **{name: results[name].verdicts[place] for name in BACKENDS}})
    summaries = {name: result.summary(name) for name, result in results.items()}
    rows += summaries.values()
    ours = summaries["llguidance"]
    goals = [
        Goal("schemas_right_share", ours["right"] / ours["schemas"], 0.9, "higher"),
        Goal("mask_ms_p99", ours["mask_ms_p99"], GOAL_MASK_MS, "lower"),
    ]
    return Report("grammar", command, rows, goals)


class _Results:
    """What one backend makes of the cases."""

    def __init__(self, name: str, path: Path, cases: Sequence[Case]) -> None:
        self.verdicts: list[str] = []
        self._compile_ms: list[float] = []
        self._mask_ms: list[float] = []
        self._prepared: dict[str, Any] = {}
        context = multiprocessing.get_context("spawn")
        pool = context.Pool(1, _prepare, (name, path))
        for case in cases:
            try:
                verdict, compile_ms, mask_ms = pool.apply_async(_judge, (case,)).get(PATIENCE_S)
            except multiprocessing.TimeoutError:
                self.verdicts.append(f"no end within {PATIENCE_S} s")
                pool.terminate()
                pool = context.Pool(1, _prepare, (name, path))
                continue
            self.verdicts.append(verdict)
            self._compile_ms += compile_ms
            self._mask_ms += mask_ms
        self._prepared = pool.apply(_prepared)
        pool.terminate()

    def summary(self, name: str) -> dict[str, Any]:
        masks = sorted(self._mask_ms)
        return {
            "backend": name,
            **self._prepared,
            "schemas": len(self.verdicts),
            "right": self.verdicts.count("right"),
            "compile_ms_median": round(statistics.median(self._compile_ms), 2),
            "compile_ms_worst": round(max(self._compile_ms), 2),
            "mask_ms_median": round(statistics.median(masks), 3),
            "mask_ms_p99": round(masks[int(0.99 * len(masks))], 3),
            "mask_ms_worst": round(masks[-1], 3),
        }


class _Llguidance:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._compiler = Compiler(vocabulary, {})
        self._compiler.build(Json("{}"))  # makes the tokenizer

    def compile(self, schema: dict[str, Any]) -> Follower | None:
        try:
            return _Guided(self._compiler.build(Json.of(schema)).begin())
        except SchemaRefused:
            return None


class _Guided:
    def __init__(self, matcher: GrammarMatcher) -> None:
        self._matcher = matcher

    def allows(self, token: int) -> bool:
        return bool(self._matcher.allowed()[token])

    def advance(self, token: int) -> None:
        self._matcher.advance(token)


class _LlamaCpp:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._size = vocabulary.size
        self._vocab = llama.llama_model_get_vocab(load_model(vocabulary.info.path, vocab_only=True))

    def compile(self, schema: dict[str, Any]) -> Follower | None:
        try:
            grammar = json_schema_to_gbnf(json.dumps(schema))
        except Exception:  # whatever the converter raises: it can't take the schema
            return None
        sampler = llama.llama_sampler_init_grammar(self._vocab, grammar.encode(), b"root")
        return _LlamaGrammar(sampler, self._size) if sampler else None


class _LlamaGrammar:
    def __init__(self, sampler: Any, size: int) -> None:
        self._sampler = sampler
        self._fresh = (llama.llama_token_data * size)(*((i, 0.0, 0.0) for i in range(size)))
        self._data = (llama.llama_token_data * size)()
        self._array = llama.llama_token_data_array(data=self._data, size=size, selected=-1, sorted=False)

    def allows(self, token: int) -> bool:
        ctypes.memmove(self._data, self._fresh, ctypes.sizeof(self._fresh))
        llama.llama_sampler_apply(self._sampler, ctypes.byref(self._array))
        return bool(self._data[token].logit > float("-inf"))

    def advance(self, token: int) -> None:
        llama.llama_sampler_accept(self._sampler, token)


BACKENDS: dict[str, Callable[[Vocabulary], Any]] = {"llguidance": _Llguidance, "llama.cpp": _LlamaCpp}


_here: dict[str, Any] = {}
"""Of a measuring process. There is one for each backend, as a grammar that never ends has to be ended with it."""


def _prepare(name: str, path: Path) -> None:
    vocabulary = Vocabulary.open(path)
    started = time.thread_time()
    backend = BACKENDS[name](vocabulary)
    prepare_ms = 1e3 * (time.thread_time() - started)
    _here.update(vocabulary=vocabulary, backend=backend, prepare_ms=prepare_ms)


def _prepared() -> dict[str, Any]:
    return {"vocabulary": _here["vocabulary"].size, "prepare_ms": round(_here["prepare_ms"], 1)}


def _judge(case: Case) -> tuple[str, list[float], list[float]]:
    """(verdict, milliseconds of each compilation, of each mask)."""
    wrong: list[str] = []
    compile_ms: list[float] = []
    mask_ms: list[float] = []
    for text, wanted in [*((text, True) for text in case.valid), *((text, False) for text in case.invalid)]:
        started = time.thread_time()
        follower = _here["backend"].compile(case.schema)
        compile_ms.append(1e3 * (time.thread_time() - started))
        if follower is None:
            return "refused", compile_ms, mask_ms
        if _writes(follower, _here["vocabulary"], text, mask_ms) != wanted:
            wrong.append(f"{'refuses' if wanted else 'allows'} {text[:40]}")
    return "; ".join(wrong) or "right", compile_ms, mask_ms


def _writes(follower: Follower, vocabulary: Vocabulary, text: str, mask_ms: list[float]) -> bool:
    """Whether `text`, and then the end, can be written."""
    for token in [*vocabulary.tokenise(text), vocabulary.eos_id or 0]:
        started = time.thread_time()
        allowed = follower.allows(token)
        mask_ms.append(1e3 * (time.thread_time() - started))
        if not allowed:
            return False
        if not vocabulary.is_end(token):
            follower.advance(token)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report as JSON; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="clawd bench grammar", description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    report = run(options.model, quick=options.quick, command="python -m clawd.bench.grammar")
    print(report.to_json())
    return int(not all(goal.ok for goal in report.goals))


if __name__ == "__main__":
    raise SystemExit(main())
