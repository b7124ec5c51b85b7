"""The engine: one thread that owns the model's context and serves every request on it.

Other threads talk to it through a queue; what they get back are events on their sink and futures. Guarantees
* A prompt that doesn't fit is refused in `submit`, before anything is read.
* Response ids are exactly as sampled, the end token included.
* Cancelling takes effect at the next step.
* If decoding fails or the thread dies, every request gets `Finished(reason="error")` and `alive` turns false.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from clawd.config import ServerSettings
from clawd.errors import AdapterRejected, ContextOverflow, EngineStopped
from clawd.server.engine.adapters import AdapterSet
from clawd.server.engine.model import LoadedModel
from clawd.server.engine.sampler import Row, Sampler
from clawd.server.engine.scheduler import Sampled, Scheduler
from clawd.server.engine.text import ShownText
from clawd.server.engine.types import (
    AdapterVersion,
    EngineStats,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Priority,
    Sink,
    Token,
)
from clawd.server.engine.warming import Warming, choose_prefixes

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass
class _Run:
    """One request in flight."""

    key: str
    request: GenerationRequest
    sink: Sink
    sampler: Sampler
    shown: ShownText
    response_tokens: int = 0


@dataclass(frozen=True)
class Handle:
    """A submitted request."""

    request: GenerationRequest  # as accepted: `max_new_tokens` is what fits
    _key: str
    _engine: Engine

    def cancel(self) -> None:
        """End it at the next step with `Finished(reason="cancelled")`; nothing happens if it has ended."""
        self._engine._call(lambda: self._engine._cancel(self._key))


@dataclass
class _Counters:
    prompt_tokens: int = 0
    response_tokens: int = 0
    cached_tokens: int = 0
    steps: int = 0


@dataclass(frozen=True)
class _Command:
    run: Callable[[], None]
    refuse: Callable[[EngineStopped], object] = field(default=lambda _: None)


class Engine:
    """Serves `model` as `server` says. `start` it, `submit` requests, `stop` it, then close the model."""

    def __init__(self, model: LoadedModel, server: ServerSettings) -> None:
        self.model = model
        self.context: int = model.shape.context
        self._scheduler = Scheduler(model.limits(server))
        self._adapters = AdapterSet(model.handle, model.context_handle, server.adapters_loaded)
        self._commands: SimpleQueue[_Command] = SimpleQueue()
        self._runs: dict[str, _Run] = {}
        self._counters = _Counters()
        self._gate = threading.Lock()  # between accepting a command and dying
        self._open = False
        self._stop_at: float | None = None  # monotonic time after which running requests are cut
        self._keys = 0
        self._thread = threading.Thread(target=self._main, name="clawd-engine", daemon=True)
        self._stats = self._snapshot()

    # -- for other threads -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._open = True
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether requests are served."""
        return self._open and self._thread.is_alive()

    def submit(self, request: GenerationRequest, sink: Sink) -> Handle:
        """Queue a request; `sink` gets its events on the engine's thread. `max_new_tokens` is clamped to what fits.

        Raises:
            ContextOverflow: the prompt leaves no room for one token of an answer.
            EngineStopped: the engine has stopped or died.
        """
        room = self.context - len(request.prompt_ids)
        if room < 1:
            raise ContextOverflow(len(request.prompt_ids), self.context)
        if not request.prompt_ids:
            raise ValueError("a prompt needs at least one token")
        request = replace(request, max_new_tokens=min(request.max_new_tokens, room))
        with self._gate:
            self._keys += 1
            key = f"{request.id}#{self._keys}"
        run = _Run(key, request, sink, Sampler(request.sampling), ShownText(request.stop))
        self._send(_Command(lambda: self._admit(run), lambda error: self._tell(run, _failed(str(error)))))
        return Handle(request, key, self)

    def load(self, version: AdapterVersion) -> Future[None]:
        """Have an adapter version in memory. The future raises AdapterRejected if llama.cpp refuses the file."""
        return self._ask(lambda: self._adapters.load(version))

    def retire(self, version_id: str) -> Future[None]:
        """Forget a version: its remembered sequences go now, its weights when the last running request on it ends."""

        def retire() -> None:
            self._scheduler.forget_version(version_id)
            self._adapters.retire(version_id)

        return self._ask(retire)

    def warm(
        self, version: AdapterVersion, previous: AdapterVersion | None, min_tokens: int, max_tokens: int
    ) -> Future[int]:
        """Read under `version`, in the background, what conversations under `previous` (none: the base) hold.

        Prefixes of at least `min_tokens`, latest first, up to `max_tokens` in all, each common part once. After it the
        next turn of these conversations finds its prompt remembered under the new version. The result is the number
        of tokens read. Like all background work it stands back for people: cancel the future to do without the rest.
        """
        future: Future[int] = Future()
        self._send(
            _Command(
                lambda: self._warm(future, version, previous, min_tokens, max_tokens),
                lambda error: _fail(future, error),
            )
        )
        return future

    def stats(self) -> EngineStats:
        """As of the last step."""
        return self._stats

    def stop(self, grace_s: float) -> None:
        """Accept nothing more, let running requests end within `grace_s` seconds, cut the rest, end the thread."""
        with self._gate:
            was_open, self._open = self._open, False
        if was_open:
            deadline = time.monotonic() + grace_s

            def close() -> None:
                self._stop_at = deadline
                for run in list(self._runs.values()):
                    if run.request.max_new_tokens == 0:
                        self._cancel(run.key)

            self._commands.put(_Command(close))
        if self._thread.is_alive():
            self._thread.join()

    def _call(self, action: Callable[[], None]) -> None:
        """Do `action` on the engine's thread; nothing happens if that has ended, as then all requests have, too."""
        with self._gate:
            if self._thread.is_alive():
                self._commands.put(_Command(action))

    def _ask(self, action: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(action())
            except AdapterRejected as error:
                future.set_exception(error)

        self._send(_Command(answer, lambda error: _fail(future, error)))
        return future

    def _send(self, command: _Command) -> None:
        with self._gate:
            if not self.alive:
                raise EngineStopped("The engine is stopped; the daemon restarts it. Send the request again.")
            self._commands.put(command)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        reason = "The engine has stopped. Send the request again."
        try:
            while not self._should_end():
                self._take_commands()
                self._step()
                self._stats = self._snapshot()
        except Exception as error:
            logger.exception("the engine dies")
            reason = f"The engine failed ({error}); the daemon restarts it. Send the request again."
        finally:
            self._die(reason)

    def _should_end(self) -> bool:
        if self._stop_at is None:
            return False
        return not self._runs or time.monotonic() >= self._stop_at

    def _take_commands(self) -> None:
        """All that have come in; if there is nothing else to do, wait for one."""
        if not self._runs and self._stop_at is None:
            self._commands.get().run()
        while True:
            try:
                command = self._commands.get_nowait()
            except Empty:
                return
            command.run()

    def _step(self) -> None:
        plan = self._scheduler.plan()
        if plan is None:
            assert not self._runs, "the scheduler has requests and no plan"
            return
        self._adapters.use(plan.version)
        self.model.apply(plan.operations)
        sampled: dict[str, Sampled] = {}
        for row, logits in self.model.decode(plan.rows):
            sampled[row.request] = self._sample(self._runs[row.request], logits)
        self._counters.steps += 1
        for row in plan.rows:
            prompt_length = len(self._runs[row.request].request.prompt_ids)
            self._counters.prompt_tokens += max(0, min(row.start + len(row.tokens), prompt_length) - row.start)
            if row.start + len(row.tokens) == prompt_length and not row.samples:
                run = self._runs[row.request]
                self._tell(run, self._finished(run, "length"))  # only to be read
        done = self._scheduler.complete(plan, sampled)
        for key in [*done, *(key for key, outcome in sampled.items() if outcome.ended)]:
            self._forget(key)

    def _sample(self, run: _Run, logits: Row) -> Sampled:
        """Choose, tell the sink, and say whether the request has ended; if so its last event has been sent."""
        try:
            choice = run.sampler.choose(logits)
        except ValueError as error:
            self._tell(run, self._finished(run, "error", error=f"The answer can't go on: {error}."))
            return Sampled(0, ended=True)
        run.response_tokens += 1
        self._counters.response_tokens += 1
        at_end = self.model.vocabulary.is_end(choice.id)
        text = "" if at_end else run.shown.feed(self.model.vocabulary.token_bytes(choice.id))
        told = self._tell(run, Token(choice.id, choice.logprob, text, choice.alternatives))
        reason: FinishReason | None = None
        if not told:
            return Sampled(choice.id, ended=True)
        if at_end or run.shown.stopped:
            reason = "stop"
        elif run.response_tokens >= run.request.max_new_tokens:
            reason = "length"
        if reason:
            self._tell(run, self._finished(run, reason))
        return Sampled(choice.id, ended=reason is not None)

    def _admit(self, run: _Run) -> None:
        request = run.request
        try:
            if request.version is not None:
                self._adapters.acquire(request.version)
        except AdapterRejected as error:
            self._tell(run, _failed(str(error)))
            return
        self._runs[run.key] = run
        version_id = request.version.id if request.version else None
        read_only = request.max_new_tokens == 0
        self._scheduler.add(run.key, request.prompt_ids, version_id, request.priority, read_only=read_only)

    def _cancel(self, key: str) -> None:
        run = self._runs.get(key)
        if run is not None:
            finished = self._finished(run, "cancelled")
            self._scheduler.cancel(key)
            self._forget(key)
            self._tell(run, finished)

    def _forget(self, key: str) -> None:
        """A request has ended: count it and let its adapter go."""
        run = self._runs.pop(key)
        if run.request.version is not None:
            self._adapters.release(run.request.version.id)

    def _finished(self, run: _Run, reason: FinishReason, error: str | None = None) -> Finished:
        cached = self._scheduler.cached_tokens(run.key)
        self._counters.cached_tokens += cached
        return Finished(
            reason=reason,
            text=run.shown.finish(),
            error=error,
            prompt_tokens=len(run.request.prompt_ids),
            cached_tokens=cached,
            response_tokens=run.response_tokens,
        )

    def _warm(
        self,
        future: Future[int],
        version: AdapterVersion,
        previous: AdapterVersion | None,
        min_tokens: int,
        max_tokens: int,
    ) -> None:
        room = min(max_tokens, self._scheduler.cells_not_running())
        held = self._scheduler.prefixes(previous.id if previous else None)
        prefixes = choose_prefixes([tokens[: self.context - 1] for tokens in held], min_tokens, room)
        warming = Warming(future, len(prefixes))
        keys = []
        for index, tokens in enumerate(prefixes):
            request = GenerationRequest(
                id=f"warm-{version.id}-{index}",
                prompt_ids=tuple(tokens.tolist()),
                max_new_tokens=0,
                version=version,
                priority=Priority.BACKGROUND,
            )
            with self._gate:
                self._keys += 1
                keys.append(f"{request.id}#{self._keys}")
            self._admit(_Run(keys[-1], request, warming.sink, Sampler(request.sampling), ShownText(())))

        def cancel_rest(done: Future[int]) -> None:
            if done.cancelled():
                for key in keys:
                    self._call(partial(self._cancel, key))

        future.add_done_callback(cancel_rest)

    def _snapshot(self) -> EngineStats:
        running, waiting, paused = self._scheduler.counts()
        return EngineStats(
            running=running,
            waiting=waiting,
            paused=paused,
            remembered=len(self._scheduler.cache),
            cells_used=self._scheduler.ledger.used,
            cells_total=self._scheduler.ledger.total,
            versions_loaded=len(self._adapters),
            prompt_tokens=self._counters.prompt_tokens,
            response_tokens=self._counters.response_tokens,
            cached_tokens=self._counters.cached_tokens,
            steps=self._counters.steps,
        )

    def _die(self, reason: str) -> None:
        """Nobody is left waiting: what is in flight and what is queued ends with an error."""
        with self._gate:
            self._open = False
        for run in self._runs.values():
            self._tell(run, self._finished(run, "error", error=reason))
        self._runs.clear()
        while not self._commands.empty():
            self._commands.get_nowait().refuse(EngineStopped(reason))
        self._adapters.close()

    def _tell(self, run: _Run, event: Event) -> bool:
        """Whether the sink took it. A sink that raises costs its own request, not the engine."""
        try:
            run.sink(event)
        except Exception:
            logger.exception("the sink of request %s failed", run.request.id)
            return False
        return True


def _failed(reason: str) -> Finished:
    return Finished("error", error=reason)


def _fail(future: Future[Result], error: Exception) -> None:
    with suppress(InvalidStateError):  # cancelled meanwhile
        future.set_exception(error)
