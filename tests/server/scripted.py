"""An engine that says what it is told to: for what no model small enough for tests would say by itself."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clawd.config import Settings
from clawd.server.engine.engine import Engine, Handle
from clawd.server.engine.run import Run
from clawd.server.engine.types import GenerationRequest, Sink
from tests.server.live import Live, live_server


class ScriptedEngine:
    """The real engine, but a request that comes while a reply is prepared gets that, through the engine's own `Run`.

    A reply is sampled from logits that leave no choice, so that everything behind the model is the real thing.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._replies: deque[list[int] | None] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def say(self, *replies: str) -> list[list[int]]:
        """Prepare the next answers; their ids, without the end token that each gets."""
        vocabulary = self._engine.vocabulary
        ids = [vocabulary.tokenise(text, parse_special=True) for text in replies]
        self._replies += [[*reply, vocabulary.eos_id] for reply in ids]
        return ids

    def fail(self) -> None:
        """Let the next answer end in an engine's error, before its first token."""
        self._replies.append(None)

    def submit(self, request: GenerationRequest, sink: Sink) -> Handle:
        if not self._replies:
            return self._engine.submit(request, sink)
        request = replace(request, sampling=replace(request.sampling, temperature=0.0))
        run = Run(request.id, request, sink)
        threading.Thread(target=self._play, args=(run, self._replies.popleft())).start()
        return Handle(request, lambda: None)

    def _play(self, run: Run, ids: list[int] | None) -> None:
        vocabulary = self._engine.vocabulary
        if ids is None:
            run.finish("error", 0, "as the script says")
            return
        for token in ids:
            logits = np.zeros(vocabulary.size, np.float32)
            logits[token] = 50
            if run.sample(logits, vocabulary, 0)[1]:
                return
        raise AssertionError("a scripted reply has no end")


class ScriptedLive:
    """A live server and the engine that it asks."""

    def __init__(self, live: Live, engine: ScriptedEngine) -> None:
        self.live = live
        self.engine = engine


@contextmanager
def scripted_server(home: Path, settings: Settings | None = None) -> Iterator[ScriptedLive]:
    with live_server(home, settings) as live:
        engine = ScriptedEngine(live.services.engine)
        live.services.engine = engine  # type: ignore[assignment]
        yield ScriptedLive(live, engine)
