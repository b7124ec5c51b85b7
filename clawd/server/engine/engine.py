"""The engine: one thread that owns the model's context and serves every request on it.

Other threads talk to it through a queue; what they get back are events on their sink and futures. Guarantees
* A prompt that doesn't fit is refused in `submit`, before anything is read.
* Response ids are exactly as sampled, the end token included.
* Cancelling takes effect at the next step.
* A request past its time limit ends: with what it has of an answer, as if cut by length, or with an error.
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
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

import numpy as np

from clawd.config import Settings
from clawd.errors import AdapterError, AdapterRejected, ContextOverflow, EngineStopped, TookTooLong
from clawd.model.info import ModelInfo
from clawd.model.vocab import Vocabulary
from clawd.presence import Presence
from clawd.server.engine.adapters import AdapterSet
from clawd.server.engine.deadlines import Deadlines
from clawd.server.engine.model import ContextShape, LoadedModel
from clawd.server.engine.restoring import Restoring
from clawd.server.engine.run import Run
from clawd.server.engine.saved import SavedStates
from clawd.server.engine.scheduler import Sampled, Scheduler, StepPlan
from clawd.server.engine.types import AdapterVersion, EngineStats, GenerationRequest, Priority, Sink
from clawd.server.engine.warming import Warming, choose_prefixes

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

LATE_WAITING = "Too many requests came before this one. Send it again in a moment, or raise server.max_wait_s."
LATE_READING = "The prompt could not be read within server.max_request_s. Send it again: what was read is remembered."


@dataclass(frozen=True)
class Handle:
    """A submitted request."""

    request: GenerationRequest  # as accepted: `max_new_tokens` is what fits
    _cancel: Callable[[], None]

    def cancel(self) -> None:
        """End it at the next step with `Finished(reason="cancelled")`; nothing happens if it has ended."""
        self._cancel()


@dataclass
class _Counters:
    prompt_tokens: int = 0
    response_tokens: int = 0
    cached_tokens: int = 0
    steps: int = 0
    broken_off: int = 0


@dataclass(frozen=True)
class _Command:
    run: Callable[[], None]
    refuse: Callable[[EngineStopped], object] = field(default=lambda _: None)


class Engine:
    """Loads `path` and serves it as the settings say: `start` it, `submit` requests, `stop` it, `close` it.

    `use_extra_bufts` comes from the binding's probe. `saved`: states on disk, which it adds to when it stops; none: it
    remembers nothing beyond its end. `presence`: is told while a person's request is here; none: nobody asks.

    Raises:
        ModelError: the file can't be served; nothing stays loaded.
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        *,
        use_extra_bufts: bool = True,
        saved: SavedStates | None = None,
        presence: Presence | None = None,
    ) -> None:
        server = settings.server
        self._model = LoadedModel.load(path, settings.model, server, use_extra_bufts=use_extra_bufts)
        self.vocabulary: Vocabulary = self._model.vocabulary
        self.model_info: ModelInfo = self.vocabulary.info
        self.shape: ContextShape = self._model.shape
        self.context: int = self.shape.context  # tokens of prompt and answer together
        self._scheduler = Scheduler(self._model.limits(server))
        self._adapters = AdapterSet(self._model.handle, self._model.context_handle, server.adapters_loaded)
        self._restoring = Restoring(saved, self._scheduler, self._model) if saved is not None else None
        self._presence = presence
        self._commands: SimpleQueue[_Command] = SimpleQueue()
        self._runs: dict[str, Run] = {}
        self._deadlines = Deadlines(server.max_wait_s, server.max_request_s)
        self._counters = _Counters()
        self._gate = threading.Lock()  # between accepting a command and dying
        self._open = False
        self._stop_at: float | None = None  # monotonic time after which running requests are cut
        self._keys = 0
        self._thread = threading.Thread(target=self._main, name="clawd-engine", daemon=True)

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
        run = Run(self._new_key(request.id), request, sink)
        self._send(_Command(partial(self._admit, run), run.refuse))
        if request.priority == Priority.INTERACTIVE:
            self._model.interruption.now()
        return Handle(request, partial(self._call, partial(self._cancel, run.key)))

    def load(self, version: AdapterVersion) -> Future[None]:
        """Have a version in memory until it retires. The future raises AdapterRejected if its file is refused."""
        return self._ask(partial(self._adapters.load, version))

    def retire(self, version_id: str) -> Future[None]:
        """Forget a version: its remembered sequences go now, its weights when the last running request on it ends.

        That holds for requests still to come as well, until `load` wants it again. It needn't be in memory.
        """

        def retire() -> None:
            self._scheduler.forget_version(version_id)
            if self._restoring is not None:
                self._restoring.forget_version(version_id)
            self._adapters.retire(version_id)

        return self._ask(retire)

    def warm(
        self,
        version: AdapterVersion,
        previous: AdapterVersion | None,
        min_tokens: int,
        max_tokens: int | None = None,
    ) -> Future[int]:
        """Read under `version`, in the background, what conversations under `previous` (none: the base) hold.

        Prefixes of at least `min_tokens`, latest first, up to `max_tokens` in all (none: what fits), each common part
        once. After it the next turn of these conversations finds its prompt remembered under the new version. While
        people are answered it gets a small share of the steps, so that it ends however busy they are. The result is
        the number of tokens read. Cancel the future to do without the rest.
        """
        future: Future[int] = Future()
        begin = partial(self._warm, future, version, previous, min_tokens, max_tokens)
        self._send(_Command(begin, partial(_fail, future)))
        return future

    def stats(self) -> EngineStats:
        """As of now, read while the engine works: figures of one step may stand beside those of the next."""
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
            broken_off=self._counters.broken_off,
            restored_tokens=self._restoring.restored_tokens if self._restoring is not None else 0,
            saved_states=len(self._restoring) if self._restoring is not None else 0,
        )

    def stop(self, grace_s: float) -> None:
        """Accept nothing more, let running requests end within `grace_s` seconds, cut the rest, end the thread."""
        with self._gate:
            was_open, self._open = self._open, False
        if was_open:
            self._commands.put(_Command(partial(self._begin_end, time.monotonic() + grace_s)))
        if self._thread.is_alive():
            self._thread.join()

    def close(self) -> None:
        """Free model and context; nobody may use `vocabulary` any more. A process that ends needn't call this."""
        self.stop(0.0)
        self._model.close()

    def _new_key(self, request_id: str) -> str:
        with self._gate:
            self._keys += 1
            return f"{request_id}#{self._keys}"

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

        self._send(_Command(answer, partial(_fail, future)))
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
                self._end_late()
                self._step()
            self._end_all(EngineStopped(reason))
            if self._restoring is not None:
                self._restoring.save()
        except Exception as error:
            logger.exception("the engine dies")
            reason = f"The engine failed ({error}); the daemon restarts it. Send the request again."
        finally:
            self._die(EngineStopped(reason))

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
            if self._runs:
                raise RuntimeError("the scheduler has requests and no plan")
            return
        self._adapters.use(plan.version)
        self._model.apply(plan.operations)
        seeded = any(self._runs[row.request].request.sampling.seed is not None for row in plan.rows)
        decoded = self._model.try_decode(plan.rows, interruptible=not plan.for_people, repeatable=seeded)
        if decoded is None:
            self._scheduler.abandon(plan)
            self._counters.broken_off += 1
            return
        sampled: dict[str, Sampled] = {}
        for row, logits in decoded:
            cached = self._scheduler.cached_tokens(row.request)
            sampled[row.request] = Sampled(*self._runs[row.request].sample(logits, self.vocabulary, cached))
        self._count(plan, len(sampled))
        ended = [key for key, outcome in sampled.items() if outcome.ended]
        for row in plan.rows:
            run = self._runs[row.request]
            if run.read_only and row.start + len(row.tokens) == len(run.request.prompt_ids):
                run.finish("length", self._scheduler.cached_tokens(run.key))
                ended.append(run.key)
        for key in ended:
            self._counters.cached_tokens += self._scheduler.cached_tokens(key)
        self._scheduler.complete(plan, sampled)
        for key in ended:
            self._forget(key)

    def _count(self, plan: StepPlan, sampled: int) -> None:
        self._counters.steps += 1
        self._counters.response_tokens += sampled
        for row in plan.rows:
            prompt_left = len(self._runs[row.request].request.prompt_ids) - row.start
            self._counters.prompt_tokens += max(0, min(len(row.tokens), prompt_left))

    def _admit(self, run: Run) -> None:
        try:
            if run.request.version is not None:
                self._adapters.acquire(run.request.version)
        except AdapterRejected as error:
            run.refuse(AdapterError(f"{error} Restore the file from a backup, or ask for another version."))
            return
        self._runs[run.key] = run
        self._tell_presence()
        request = run.request
        if self._restoring is not None:
            self._restoring.restore(run.version_id, np.asarray(request.prompt_ids, np.int32))
        self._scheduler.add(
            run.key,
            request.prompt_ids,
            run.version_id,
            request.priority,
            read_only=run.read_only,
            owner=request.owner,
        )
        if not run.read_only:
            self._deadlines.add(run.key, time.monotonic(), may_wait=request.priority == Priority.BACKGROUND)

    def _cancel(self, key: str) -> None:
        if key in self._runs:
            run, cached = self._take_out(key)
            run.finish("cancelled", cached)

    def _end_late(self) -> None:
        for key in self._deadlines.passed(time.monotonic(), self._scheduler.has_begun):
            begun = self._scheduler.has_begun(key)
            run, cached = self._take_out(key)
            if run.response_tokens:
                run.finish("length", cached)
                continue
            late = TookTooLong(LATE_READING if begun else LATE_WAITING)
            run.finish("error", cached, str(late), late)

    def _take_out(self, key: str) -> tuple[Run, int]:
        """A request that ends before its time, and its cached tokens; what was computed for it is remembered."""
        run, cached = self._runs[key], self._scheduler.cached_tokens(key)
        self._counters.cached_tokens += cached
        self._scheduler.cancel(key)
        self._forget(key)
        return run, cached

    def _forget(self, key: str) -> None:
        self._deadlines.drop(key)
        version_id = self._runs.pop(key).version_id
        self._tell_presence()
        if version_id is not None:
            self._adapters.release(version_id)

    def _tell_presence(self) -> None:
        if self._presence is not None:
            self._presence.tell(any(run.request.priority == Priority.INTERACTIVE for run in self._runs.values()))

    def _warm(
        self,
        future: Future[int],
        version: AdapterVersion,
        previous: AdapterVersion | None,
        min_tokens: int,
        max_tokens: int | None,
    ) -> None:
        room = self._scheduler.cells_not_running()
        held = self._scheduler.prefixes(previous.id if previous else None)
        fitting = [tokens[: self.context - 1] for tokens in held]
        prefixes = choose_prefixes(fitting, min_tokens, room if max_tokens is None else min(room, max_tokens))
        warming = Warming(future, len(prefixes))
        runs = []
        for tokens in prefixes:
            request = GenerationRequest(
                id=f"warm-{version.id}",
                prompt_ids=tuple(tokens.tolist()),
                max_new_tokens=0,
                version=version,
                priority=Priority.BACKGROUND,
            )
            runs.append(Run(self._new_key(request.id), request, warming.sink))
            self._admit(runs[-1])

        def cancel_rest(done: Future[int]) -> None:
            if done.cancelled():
                for run in runs:
                    self._call(partial(self._cancel, run.key))

        future.add_done_callback(cancel_rest)

    def _begin_end(self, stop_at: float) -> None:
        """Nobody waits for what is read beforehand."""
        self._stop_at = stop_at
        for run in [run for run in self._runs.values() if run.read_only]:
            self._cancel(run.key)

    def _die(self, error: EngineStopped) -> None:
        self._end_all(error)
        self._adapters.close()

    def _end_all(self, error: EngineStopped) -> None:
        """Nobody is left waiting: what is in flight and what is queued ends with an error."""
        with self._gate:
            self._open = False
        for run in self._runs.values():
            run.finish("error", self._scheduler.cached_tokens(run.key), str(error))
            self._scheduler.cancel(run.key)
        self._runs.clear()
        self._tell_presence()
        while not self._commands.empty():
            self._commands.get_nowait().refuse(error)


def _fail(future: Future[Result], error: EngineStopped) -> None:
    with suppress(InvalidStateError):  # cancelled meanwhile
        future.set_exception(error)
