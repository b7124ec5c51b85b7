"""When an adapter is updated: enough samples wait, or somebody asked; no other update runs, nothing forbids it.

`Updates.tick` does what is due and returns: begins an update, looks whether the running one has ended, publishes it.
One update at a time on a machine. What happens is noted as an event `update.started`, `.staged`, `.refused`, `.failed`,
`.blocked` or `.unblocked`, with figures; a version that is staged is the server's to activate. What the settings say of
the time and the machine is `due.py`'s; what becomes of an adapter whose updates go wrong, `trust.py`'s.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from clawd.config import LearnSettings
from clawd.errors import UpdateFailed
from clawd.learner import jobs
from clawd.learner.backends import Backend, RunningUpdate
from clawd.learner.budget import Work
from clawd.learner.due import Machine, Moment, machine_waits_for, schedule_waits_for
from clawd.learner.hints import Render
from clawd.learner.job import Outcome
from clawd.learner.jobs import ServedModel
from clawd.learner.machine import look
from clawd.learner.publish import Publisher
from clawd.learner.room import room_waits_for
from clawd.learner.trust import INTERRUPTED, Trust
from clawd.learner.window import Window
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.codec import now
from clawd.store.records import Adapter, Update
from clawd.store.updates import BLOCKED, SUPERSEDED, UNBLOCKED

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 900.0
LOOK_AT_MACHINE_EVERY_S = 15.0
"""A load that swings around its limit would be a story of its own in the events."""


@dataclass(frozen=True)
class Current:
    """The update that runs now."""

    update: Update
    handle: RunningUpdate
    started_at: float  # of the clock


@dataclass
class Pause:
    """After failures of an adapter's updates: when the next may begin."""

    failures: int = 0
    until: float = 0.0


@dataclass(frozen=True)
class Deps:
    """What updates need of the world around."""

    data: DataFolder
    store: Store
    settings: LearnSettings
    served: ServedModel
    render: Render
    backend: Backend
    publisher: Publisher
    clock: Callable[[], float] = field(default=time.monotonic)
    wall: Callable[[], float] = field(default=time.time)  # Unix seconds
    look_at_machine: Callable[[], Machine] = field(default=look)


class Updates:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._store = deps.store
        self._current: Current | None = None
        self._pauses: dict[str, Pause] = {}
        self._prepared = False
        self._blocked: dict[str, str] = {}  # adapter id → why, as last told
        self._window = Window(deps.store, deps.settings.cron) if deps.settings.when == "window" else None
        self._machine: tuple[float, Machine] | None = None  # when it was looked at, by the clock
        self._trust = Trust(deps.store, deps.settings)

    # -- life

    def recover(self) -> None:
        """At start: updates that a dead process left running. What it had finished counts, the rest is interrupted."""
        for adapter in self._store.people.adapters():
            told = self._store.newest_event((BLOCKED, UNBLOCKED), adapter.id)
            if told is not None and told["kind"] == BLOCKED:
                self._blocked[adapter.id] = json.loads(told["detail"])["reason"]
        for update in self._store.updates.running():
            outcome = jobs.read_outcome(jobs.folder_of(self._deps.data, update.id))
            if outcome is None:
                self._fail(update, INTERRUPTED, attempts=None)
            else:
                self._conclude(update, outcome)

    def tick(self) -> None:
        if self._current is not None:
            self._look_after(self._current)
        if self._current is None and self._deps.settings.enabled:
            self._begin_next()

    def stop(self) -> None:
        """End the running update; its samples wait again."""
        if self._current is None:
            return
        current, self._current = self._current, None
        current.handle.cancel()
        outcome = jobs.read_outcome(jobs.folder_of(self._deps.data, current.update.id))
        if outcome is None:
            self._fail(current.update, INTERRUPTED, attempts=None)
        else:
            self._conclude(current.update, outcome)  # it had just finished

    # -- beginning

    def _begin_next(self) -> None:
        store, settings = self._store, self._deps.settings
        moment = self._moment()
        is_due = False
        for adapter in store.people.adapters():
            waiting = store.signals.waiting(adapter.id, self._deps.served.fingerprint)
            asked = store.lifecycle.is_update_asked(adapter.id)
            if waiting > 0:
                self._prepare()
            elif asked:
                store.lifecycle.forget_asked(adapter.id)
            if waiting < (1 if asked else settings.samples_per_update):
                self._tell_unblocked(adapter)
                continue
            if self._is_blocked(adapter, self._waits_for(adapter, moment, asked=asked)):
                continue
            is_due = True
            pause = self._pauses.get(adapter.id)
            if pause and self._deps.clock() < pause.until and not asked:
                continue
            if self._begin(adapter, min(waiting, settings.samples_per_update)):
                return
        if self._window is not None and not is_due:
            self._window.close()

    def _moment(self) -> Moment:
        clock, wall = self._deps.clock(), self._deps.wall()
        if self._window is not None:
            self._window.look(wall)
        if self._machine is None or clock - self._machine[0] >= LOOK_AT_MACHINE_EVERY_S:
            self._machine = (clock, self._deps.look_at_machine())
        last = self._store.lifecycle.last_request_at() if self._deps.settings.when == "idle" else None
        return Moment(
            machine=self._machine[1],
            idle_s=None if last is None else wall - last,
            window_open=self._window is not None and self._window.is_open,
        )

    def _waits_for(self, adapter: Adapter, moment: Moment, *, asked: bool) -> str | None:
        """What stands between an adapter with enough samples and its update; None: nothing."""
        settings = self._deps.settings
        halt = self._store.lifecycle.halted(adapter.id)
        return (
            self._deps.backend.unavailable()
            or self._foreign_base(adapter)
            or (halt and f"a look at it, then `clawd adapter resume {adapter.name}`: {halt.reason}")
            or machine_waits_for(settings, moment.machine, asked=asked)
            or (None if asked else schedule_waits_for(settings, moment))
            or self._room_waits_for(adapter, moment)
        )

    def _room_waits_for(self, adapter: Adapter, moment: Moment) -> str | None:
        settings, served = self._deps.settings, self._deps.served
        work = Work(
            *self._store.signals.largest_waiting(
                adapter.id, served.fingerprint, settings.samples_per_update, settings.max_sample_tokens
            )
        )
        return room_waits_for(served.path, work, settings, moment.machine.free_memory_mb)

    def _prepare(self) -> None:
        if not self._prepared and self._deps.backend.unavailable() is None:
            self._prepared = True
            served = self._deps.served
            self._deps.backend.prepare(served.path, served.fingerprint, self._deps.data.cache)

    def _is_blocked(self, adapter: Adapter, problem: str | None) -> bool:
        """Whether there is a problem; it is noted when it comes, changes or goes."""
        if problem is None:
            self._tell_unblocked(adapter)
        elif self._blocked.get(adapter.id) != problem:
            self._blocked[adapter.id] = problem
            self._store.event(BLOCKED, adapter.id, adapter=adapter.name, reason=problem)
            log.info("adapter %s is not updated yet; it waits for: %s", adapter.name, problem)
        return problem is not None

    def _tell_unblocked(self, adapter: Adapter) -> None:
        if self._blocked.pop(adapter.id, None) is not None:
            self._store.event(UNBLOCKED, adapter.id, adapter=adapter.name)

    def _foreign_base(self, adapter: Adapter) -> str | None:
        active = self._store.updates.active_version(adapter.id)
        served = self._deps.served
        if active is None or active.base_fingerprint == served.fingerprint:
            return None
        return (
            f"its version {active.number} was made for the base {active.base_fingerprint[:12]}, and {served.path.name} "
            f"({served.fingerprint[:12]}) is served: serve that base again, or learn with another user's adapter"
        )

    def _begin(self, adapter: Adapter, count: int) -> bool:
        """Claim, write the job, start it. False: there was nothing to claim."""
        deps = self._deps
        update = self._store.updates.claim(
            adapter.id, deps.served.fingerprint, count, jobs.claim_settings(deps.settings)
        )
        if update is None:
            return False
        try:
            parent = self._store.updates.version(update.parent_version_id) if update.parent_version_id else None
            folder, left_out = jobs.write(
                deps.data, deps.store, update, parent, deps.served, deps.settings, deps.render
            )
            self._quarantine(left_out)
            handle = deps.backend.start(folder)
        except Exception as error:  # whatever it was, the samples must not stay claimed by nothing
            log.exception("update %s could not be begun", update.id)
            self._fail(update, f"it could not be begun: {error}", deps.settings.attempts)
            return True
        self._current = Current(update, handle, deps.clock())
        samples = len(self._store.signals.of_update(update.id))
        self._note("started", update, samples=samples)
        return True

    # -- ending

    def _look_after(self, current: Current) -> None:
        deps = self._deps
        ended = current.handle.poll()
        if ended is None:
            pauses_s = deps.settings.max_pause_s if deps.settings.pause_when_busy else 0.0
            if deps.clock() - current.started_at <= deps.settings.timeout_s + pauses_s:
                return
            current.handle.cancel()
            ended = f"cancelled after {deps.settings.timeout_s:g} s (learn.timeout_s)"
        outcome = jobs.read_outcome(jobs.folder_of(deps.data, current.update.id))
        self._conclude(
            current.update, outcome or Outcome(state="failed", reason=f"its process ended without a word: {ended}")
        )
        self._current = None

    def _conclude(self, update: Update, outcome: Outcome) -> None:
        if self._store.updates.is_outdated(update.adapter_id, update.parent_version_id):
            self._fail(update, SUPERSEDED, attempts=None)  # whatever came of it, it goes on from the wrong version
            return
        if outcome.state == "staged":
            try:
                version = self._deps.publisher.publish(update, outcome)
            except (OSError, UpdateFailed) as error:
                self._fail(update, f"it could not be published: {error}", self._deps.settings.attempts)
                return
            self._pauses.pop(update.adapter_id, None)
            self._note(
                "staged",
                update,
                metrics=outcome.metrics,
                left_out=outcome.quarantined,
                held_back=outcome.held_back,
                doubt=outcome.doubt,
                folder=str(version.folder),
            )
            if (fault := outcome.parent_fault) and update.parent_version_id:
                self._store.lifecycle.hold_against(update.parent_version_id, fault)  # which is about to be replaced
            return
        self._quarantine(outcome.quarantined)
        reason = outcome.reason or "no reason given"
        if outcome.state == "refused":
            self._store.updates.refuse(update.id, reason, outcome.metrics)
            self._pauses.pop(update.adapter_id, None)
            self._note("refused", update, reason=reason, metrics=outcome.metrics, left_out=outcome.quarantined)
            self._trust.review(update.adapter_id)
            self._hold_against_parent(update, outcome)
        else:
            self._fail(update, reason, None if outcome.deferred else self._deps.settings.attempts, outcome)

    def _hold_against_parent(self, update: Update, outcome: Outcome) -> None:
        """The update is refused, so what it began from serves on: what the gate found wrong with that one counts."""
        if outcome.parent_fault is None or update.parent_version_id is None:
            return
        parent = self._store.updates.version(update.parent_version_id)
        self._store.event("version_faulty", parent.id, number=parent.number, reason=outcome.parent_fault)
        self._trust.hold_against(parent, outcome.parent_fault)
        self._deps.publisher.ring()  # there may be a version to go back to

    def _fail(self, update: Update, reason: str, attempts: int | None, outcome: Outcome | None = None) -> None:
        self._store.updates.fail(update.id, reason, attempts)
        figures = {"metrics": outcome.metrics, "left_out": outcome.quarantined} if outcome else {}
        if attempts is not None or (outcome is not None and outcome.deferred):
            pause = self._pauses.setdefault(update.adapter_id, Pause())
            pause.failures += 1
            pause_s = min(FIRST_PAUSE_S * 2.0 ** (pause.failures - 1), LONGEST_PAUSE_S)
            pause.until = self._deps.clock() + pause_s
            figures["next_try_in_s"] = pause_s
        self._note("failed", update, reason=reason, **figures)
        self._trust.review(update.adapter_id)

    def _quarantine(self, left_out: dict[str, str]) -> None:
        for sample_id, reason in left_out.items():
            if self._store.signals.get(sample_id).state == "claimed":  # recovery may come here a second time
                self._store.signals.quarantine(sample_id, reason)

    def _note(self, what: str, update: Update, **detail: object) -> None:
        names = {adapter.id: adapter.name for adapter in self._store.people.adapters()}
        adapter = names.get(update.adapter_id, update.adapter_id)
        if what != "started":
            detail["seconds"] = round(now() - update.started_at, 1)
        self._store.event(f"update.{what}", update.id, adapter=adapter, number=update.number, **detail)
        reason = f": {detail['reason']}" if "reason" in detail else ""
        level = logging.INFO if what in ("started", "staged") else logging.WARNING
        log.log(level, "update %s of adapter %s, version %d: %s%s", update.id, adapter, update.number, what, reason)
