"""A client of the engine, and a bare llama.cpp to compare with."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clawd.config import ModelSettings, ServerSettings, Settings
from clawd.model.llama import llama
from clawd.presence import Presence
from clawd.server.engine.engine import Engine, Handle
from clawd.server.engine.types import AdapterVersion, Event, Finished, GenerationRequest, SamplingParams, Token
from tests.tiny_gguf import Shape, write_random_lora

GREEDY = SamplingParams(temperature=0)
COMPARED = SamplingParams(temperature=0, top_logprobs=5)
PATIENCE_S = 60.0


class Answer:
    """Collects the events of one request."""

    handle: Handle

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.times: list[float] = []
        self._changed = threading.Condition()

    def sink(self, event: Event) -> None:
        with self._changed:
            assert not self.done, "an event after the last one"
            self.events.append(event)
            self.times.append(time.monotonic())
            self._changed.notify_all()

    @property
    def done(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], Finished)

    def wait(self) -> Finished:
        with self._changed:
            assert self._changed.wait_for(lambda: self.done, PATIENCE_S), "no end"
        last = self.events[-1]
        assert isinstance(last, Finished)
        return last

    def wait_for_tokens(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.done or len(self.tokens) >= count, PATIENCE_S)

    @property
    def tokens(self) -> list[Token]:
        return [event for event in self.events if isinstance(event, Token)]

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events)


def ask(engine: Engine, prompt: Sequence[int], max_new_tokens: int = 16, **fields: Any) -> Answer:
    """Submit and return at once."""
    answer = Answer()
    request = GenerationRequest(
        id="r", prompt_ids=tuple(prompt), max_new_tokens=max_new_tokens, **{"sampling": GREEDY, **fields}
    )
    answer.handle = engine.submit(request, answer.sink)
    return answer


def ids(engine: Engine, prompt: Sequence[int], max_new_tokens: int = 16, **fields: Any) -> list[int]:
    """The answer's ids; it must end well."""
    answer = ask(engine, prompt, max_new_tokens, **fields)
    finished = answer.wait()
    assert finished.reason in ("stop", "length"), finished
    return answer.ids


@contextmanager
def running(
    path: Path, *, model: ModelSettings | None = None, presence: Presence | None = None, **server: Any
) -> Iterator[Engine]:
    settings = Settings(model=model or ModelSettings(), server=ServerSettings(**server))
    engine = Engine(path, settings, presence=presence)
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def assert_same(answer: Answer, expected: Answer, tolerance: float = 0.05) -> None:
    """Two greedy answers that were asked for with alternatives agree.

    Batches of other sizes round differently, so that where two tokens are as good as equally likely (within `tolerance`
    nats) either may come, and what follows can't be compared.
    """
    assert answer.tokens, "no answer"
    for token, other in zip(answer.tokens, expected.tokens, strict=True):
        if token.id != other.id:
            likely = {alternative.id: alternative.logprob for alternative in other.alternatives}
            assert likely.get(token.id, -np.inf) > other.logprob - tolerance
            return
        assert abs(token.logprob - other.logprob) < tolerance


def until(condition: Any, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.005)


def adapter(folder: Path, shape: Shape, seed: int, strength: float = 1.0, rank: int = 4) -> AdapterVersion:
    """A random version, its file written into `folder`."""
    name = f"s{seed}"
    path = write_random_lora(folder / f"{name}.gguf", shape, seed=seed, strength=strength, rank=rank)
    return AdapterVersion(id=name, adapter_id="a", number=seed, gguf=path)


def bare_logprobs(
    path: Path, prompt: Sequence[int], answered: Sequence[int], version: AdapterVersion | None = None
) -> NDArray[np.float64]:
    """(T, V): log-softmax before each token of `answered`, from a context of its own without any of clawd.

    The prompt is read at once but for its last token, the rest token by token, as the engine does it: batches of other
    sizes round differently, on the embedded model by up to 0.3 nats.
    """
    model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 512, 512, 512
    context = llama.llama_init_from_model(model, params)
    if version is not None:
        lora = llama.llama_adapter_lora_init(model, str(version.gguf).encode())
        llama.llama_set_adapters_lora(
            context, (llama.llama_adapter_lora_p_ctypes * 1)(lora), 1, (ctypes.c_float * 1)(1.0)
        )
    size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    rows = []
    for part in filter(None, [list(prompt[:-1]), *([token] for token in [prompt[-1], *answered[:-1]])]):
        tokens = (llama.llama_token * len(part))(*part)
        assert llama.llama_decode(context, llama.llama_batch_get_one(tokens, len(part))) == 0
        rows.append(np.ctypeslib.as_array(llama.llama_get_logits_ith(context, -1), (size,)).astype(np.float64))
    llama.llama_free(context)
    llama.llama_model_free(model)
    logits = np.stack(rows[-len(answered) :])
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def bare_told(
    path: Path, prompt: Sequence[int], answered: Sequence[int], version: AdapterVersion | None = None
) -> NDArray[np.float64]:
    """(T,): the log-probabilities of `answered` itself."""
    return bare_logprobs(path, prompt, answered, version)[range(len(answered)), answered]
