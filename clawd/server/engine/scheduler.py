"""Decides what each step of the engine does. Plain records in, a plan out: no model, no clock, no I/O.

Guarantees
* A step runs one adapter version; a sequence stays with its version for life, and shares cells only within it.
* Interactive requests go before background ones, which keep their cells while they wait if there is room. Read-only
  ones alone get a small share of the steps all the same: an adapter version is to take over however busy people are.
* Within a priority, owners take turns (`fairness.py`): each one's first request gets a place at once, at the cost of
  one of several that another owner has running. Of the running ones the one that began first always gets on: later ones
  give up their cells for it and are read again.
* The plan never takes more cells than there are. A request that fits the context alone is never refused.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from clawd.server.engine.cells import CellLedger
from clawd.server.engine.fairness import in_turn, who_makes_way
from clawd.server.engine.remembered import PromptCache, Remembered, TokenBuffer, Tokens, common_prefix
from clawd.server.engine.types import Priority

ROWS_PER_STEP = 8  # a step with more rows, reading a prompt, counts as several steps of its version's slice
WARMING_EVERY = 32  # steps for people, after which one goes to reading for an adapter version that is to take over
WARMING_CHUNK = 16  # tokens of such a step: a stream hardly notices
HEADROOM = 16  # cells left to each running sequence before another one is begun: beginning it to stop it costs most


@dataclass(frozen=True)
class Limits:
    cells: int
    sequences: int  # that the key-value cache can tell apart: running and remembered ones
    max_running: int
    remembered: int
    prompt_chunk: int
    prompt_chunk_shared: int
    adapter_slice: int
    can_trim: bool = True  # the model's memory can drop the end of a sequence or share its beginning


@dataclass(frozen=True)
class Remove:
    """Drop the positions of `sequence` from `start` on."""

    sequence: int
    start: int


@dataclass(frozen=True)
class Copy:
    """Let the empty sequence `target` share the first `length` positions of `source`."""

    source: int
    target: int
    length: int


@dataclass(frozen=True)
class Row:
    """Tokens of one request for this step, at positions `start`, `start` + 1, …"""

    request: str
    sequence: int
    tokens: Tokens  # not empty
    start: int
    samples: bool  # logits are needed at the last token


@dataclass(frozen=True)
class StepPlan:
    operations: tuple[Remove | Copy, ...]  # in this order, before the rows
    version: str | None
    rows: tuple[Row, ...]
    for_people: bool = True  # false: it may be broken off when a person asks


@dataclass(frozen=True)
class Sampled:
    token: int
    ended: bool


@dataclass(eq=False)
class _Sequence:
    request: str
    order: int  # of arrival
    tokens: TokenBuffer  # prompt, then what was sampled
    prompt_length: int
    version: str | None
    priority: Priority
    read_only: bool  # nothing is sampled
    owner: str | None  # with whom it takes turns; none: nobody in particular
    begun: int = 0  # how many had begun when it did, itself included; 0: it has never had a place
    slot: int = -1
    length: int = 0  # tokens whose cells are computed
    cached_tokens: int | None = None  # of the prompt, found remembered when it was begun; none: not begun

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.length

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Those that have begun, in the order in which they did; then the others, in order of arrival."""
        return (not self.begun, self.begun, self.order)

    def __lt__(self, other: _Sequence) -> bool:
        return self.rank < other.rank


class Scheduler:
    """See the module. The caller runs each plan and calls `complete`, or `abandon`, before it asks for the next."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.ledger = CellLedger(limits.cells)
        self.cache = PromptCache(limits.remembered, can_trim=limits.can_trim)
        self._waiting: list[_Sequence] = []  # by rank
        self._active: list[_Sequence] = []  # by rank; these have a slot
        self._all: dict[str, _Sequence] = {}
        self._slots = list(range(limits.sequences - 1, -1, -1))
        self._operations: list[Remove | Copy] = []
        self._arrivals = 0
        self._begun = 0
        self._closed: set[str | None] = set()
        self._group: str | None = None
        self._spent = 0
        self._last_turn: dict[str | None, int] = {}
        self._turn = 0
        self._people_steps = 0  # since a warming step

    # -- requests ----------------------------------------------------------------------------------------------------

    def add(
        self,
        request: str,
        tokens: Sequence[int],
        version: str | None,
        priority: Priority,
        *,
        read_only: bool = False,
        owner: str | None = None,
    ) -> None:
        """Queue a request. `read_only`: its prompt is read and remembered, nothing is sampled."""
        if not 0 < len(tokens) <= self.limits.cells:
            raise ValueError(f"{len(tokens)} tokens don't fit {self.limits.cells} cells")
        self._closed.discard(version)
        self._arrivals += 1
        buffer = TokenBuffer(tokens)
        sequence = _Sequence(request, self._arrivals, buffer, len(tokens), version, priority, read_only, owner)
        self._all[request] = sequence
        self._waiting.append(sequence)

    def cancel(self, request: str) -> bool:
        """Forget a request, remembering what was computed for it; whether it was still there."""
        sequence = self._all.get(request)
        if sequence is None:
            return False
        self._end(sequence)
        return True

    def forget_version(self, version: str | None) -> None:
        """Nobody will ask for this version again: its remembered sequences go now, its running ones when they end."""
        if any(sequence.version == version for sequence in self._all.values()):
            self._closed.add(version)
        for entry in self.cache.pop_version(version):
            self._release(entry.slot)

    def has_begun(self, request: str) -> bool:
        """Whether it has had a place, even if it gave it up since."""
        return self._all[request].begun > 0

    def cached_tokens(self, request: str) -> int:
        """Prompt tokens that needn't be read for it; 0 as long as it waits."""
        return self._all[request].cached_tokens or 0

    def prefixes(self, version: str | None) -> list[Tokens]:
        """All token sequences that are held under `version`, running ones first, then by last use."""
        running = [s.tokens.array.copy() for s in self._active if s.version == version]
        remembered = sorted((e for e in self.cache if e.version == version), key=lambda e: -e.used)
        return running + [entry.tokens for entry in remembered]

    def known(self, version: str | None, tokens: Tokens) -> int:
        """How much of `tokens` is computed already under `version`, in running or remembered sequences."""
        return self._source(version, tokens)[1]

    def adopt(self, version: str | None, tokens: Tokens) -> int | None:
        """Remember a sequence whose cells come from elsewhere: the slot for them; none: there is no room.

        Remembered ones make room, running ones don't. The caller fills the slot after it has run `take_operations`.
        """
        if self.cache.limit == 0 or len(tokens) > self.cells_not_running():
            return None
        while self.ledger.free < len(tokens) or not self._slots:
            if not len(self.cache):
                return None
            self._release(self.cache.pop_oldest().slot)
        slot = self._slots.pop()
        self.ledger.extend(slot, len(tokens))
        for entry in self.cache.add(slot, version, tokens, keep=1):
            self._release(entry.slot)
        return slot

    def disown(self, slot: int) -> None:
        """Forget what was adopted into `slot`: its cells could not be filled."""
        self.cache.remove(next(entry for entry in self.cache if entry.slot == slot))
        self._release(slot)

    def take_operations(self) -> tuple[Remove | Copy, ...]:
        """What the next plan would do to the cache first, to be done now."""
        operations, self._operations = tuple(self._operations), []
        return operations

    def cells_not_running(self) -> int:
        """Cells that are free or could be: all but those of running sequences."""
        return self.limits.cells - self.ledger.distinct((s.slot, self.limits.cells) for s in self._active)

    def counts(self) -> tuple[int, int, int]:
        """(running, waiting, paused); paused are background requests that stand back for people.

        Other threads may ask, too: the lists are copied before they are looked through.
        """
        active, waiting = list(self._active), list(self._waiting)
        urgent = min((s.priority for s in (*active, *waiting)), default=Priority.INTERACTIVE)
        paused = sum(s.priority > urgent for s in (*active, *waiting))
        return sum(s.priority == urgent for s in active), sum(s.priority == urgent for s in waiting), paused

    # -- steps -------------------------------------------------------------------------------------------------------

    def plan(self) -> StepPlan | None:
        """The next step; none if there is nothing to do."""
        urgent = self._urgent()
        if urgent == Priority.INTERACTIVE and self._people_steps >= WARMING_EVERY:
            plan = self._warming_plan()
            if plan is not None:
                return plan
        waiting = [s for s in self._waiting if s.priority == urgent]
        self._make_way(urgent, waiting)
        active = [s for s in self._active if s.priority == urgent]
        startable = self._startable(active, waiting)
        for group in self._turns(active, startable):
            rows = self._rows(group, active, startable, self._chunk(active, urgent))
            if rows:
                self._take_turn(group, rows)
                self._people_steps += urgent == Priority.INTERACTIVE
                return self._planned(group, rows, urgent)
        return None

    def _warming_plan(self) -> StepPlan | None:
        """One small step for the oldest read-only background request that can get on."""
        self._people_steps = 0
        active = [s for s in self._active if s.priority == Priority.BACKGROUND and s.read_only]
        waiting = (s for s in self._waiting if s.priority == Priority.BACKGROUND and s.read_only)
        startable = self._startable(active, waiting)
        for group in dict.fromkeys(s.version for s in [*active, *startable]):
            rows = self._rows(group, active, startable, WARMING_CHUNK)
            if rows:
                return self._planned(group, rows, Priority.INTERACTIVE)
        return None

    def _planned(self, group: str | None, rows: list[Row], urgent: Priority) -> StepPlan:
        return StepPlan(self.take_operations(), group, tuple(rows), urgent == Priority.INTERACTIVE)

    def abandon(self, plan: StepPlan) -> None:
        """The operations of a plan were carried out and none of its rows: they are planned again."""
        for row in plan.rows:
            self.ledger.truncate(row.sequence, row.start)

    def complete(self, plan: StepPlan, sampled: Mapping[str, Sampled]) -> list[str]:
        """Tell the results of a plan: one `Sampled` for each row that samples.

        Returns the read-only requests that are done.
        """
        done = []
        for row in plan.rows:
            sequence = self._all[row.request]
            sequence.length = row.start + len(row.tokens)
            if row.samples:
                outcome = sampled[row.request]
                sequence.tokens.append(outcome.token)
                if outcome.ended:
                    self._end(sequence)
            elif sequence.pending == 0:
                self._end(sequence)
                done.append(row.request)
        return done

    # -- whose turn it is --------------------------------------------------------------------------------------------

    def _urgent(self) -> Priority:
        interactive = any(s.priority == Priority.INTERACTIVE for s in self._all.values())
        return Priority.INTERACTIVE if interactive else Priority.BACKGROUND

    def _startable(self, active: list[_Sequence], waiting: Iterable[_Sequence]) -> list[_Sequence]:
        """The waiting requests that may begin, in the order in which they should."""
        places = self.limits.max_running - len(active)
        return list(islice(in_turn(active, waiting), places)) if places > 0 else []

    def _make_way(self, urgent: Priority, waiting: list[_Sequence]) -> None:
        """If all places are taken, an owner who has none gets one. The cells of what gives way are remembered."""
        active = [s for s in self._active if s.priority == urgent]
        if not waiting or len(active) < self.limits.max_running:
            return
        yielding = who_makes_way(active, next(in_turn(active, waiting)))
        if yielding is not None:
            self._active.remove(yielding)
            self._remember(yielding, keep=1)
            yielding.slot, yielding.length = -1, 0
            insort(waiting, yielding)
            insort(self._waiting, yielding)

    def _turns(self, active: list[_Sequence], startable: list[_Sequence]) -> list[str | None]:
        """Versions with work, in the order in which to try them: the current one while its slice lasts, then round."""
        versions = dict.fromkeys(s.version for s in sorted([*active, *startable]))
        order = sorted(versions, key=lambda version: self._last_turn.get(version, 0))
        if self._group in versions and self._spent < self.limits.adapter_slice:
            order.remove(self._group)
            order.insert(0, self._group)
        return order

    def _take_turn(self, group: str | None, rows: list[Row]) -> None:
        count = sum(len(row.tokens) for row in rows)
        if group != self._group or self._spent >= self.limits.adapter_slice:
            self._spent = 0
            self._turn += 1
            # Versions come and go for ever: keep the turns of those that still have requests.
            alive = {s.version for s in self._all.values()}
            self._last_turn = {v: t for v, t in self._last_turn.items() if v in alive}
            self._last_turn[group] = self._turn
        self._group = group
        self._spent += max(1, count // ROWS_PER_STEP)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, group: str | None, active: list[_Sequence], startable: list[_Sequence], budget: int) -> list[Row]:
        """Those that began first come first, so that whoever must give up cells for a row isn't in this plan yet."""
        rows: list[Row] = []
        reading: list[_Sequence] = []
        for sequence in active:
            if sequence.version != group or sequence.slot < 0:  # another one's turn, or it gave up its cells just now
                continue
            wanted = self._wanted(sequence, budget)
            count = self._make_room(sequence, wanted)
            if count:
                rows.append(self._row(sequence, count))
                if sequence.pending > 1:
                    budget -= count
                    reading.append(sequence)
        reserved = 0  # for older requests that couldn't begin: younger ones don't slip past them
        for sequence in startable:
            may_start = sequence.version == group and budget > 0 and not self._better_later(sequence, reading)
            if may_start and self._start(sequence, reserved):
                count = self._make_room(sequence, self._wanted(sequence, budget))
                rows.append(self._row(sequence, count))
                budget -= count
                reading.append(sequence)
            else:
                reserved += len(sequence.tokens)
        return rows

    @staticmethod
    def _wanted(sequence: _Sequence, budget: int) -> int:
        """Tokens that it reads in this step. The one that is sampled after is read apart from the rest of a prompt:

        llama.cpp's numbers depend a little on the size of a batch, and with a remembered prompt that one token is all
        that is read. So the same request gives the same answer, remembered or not.
        """
        if sequence.pending == 1:
            return 1
        return min(sequence.pending if sequence.read_only else sequence.pending - 1, budget)

    def _chunk(self, active: list[_Sequence], urgent: Priority) -> int:
        """Prompt tokens for this step. Small ones for background prompts too: a person who comes waits for one step."""
        shared = urgent == Priority.BACKGROUND or any(s.pending == 1 for s in active)
        return self.limits.prompt_chunk_shared if shared else self.limits.prompt_chunk

    def _row(self, sequence: _Sequence, count: int) -> Row:
        start = sequence.length
        self.ledger.extend(sequence.slot, count)
        samples = count == sequence.pending and not sequence.read_only
        return Row(sequence.request, sequence.slot, sequence.tokens.array[start : start + count], start, samples)

    def _make_room(self, sequence: _Sequence, wanted: int) -> int:
        """Free up to `wanted` cells at the cost of remembered and then younger sequences; how many it may take."""
        while self.ledger.free < wanted:
            if len(self.cache):
                self._release(self.cache.pop_oldest().slot)
                continue
            victim = self._latest_below(sequence)
            if victim is None:
                break
            self._preempt(victim)
        return min(wanted, self.ledger.free)

    def _latest_below(self, sequence: _Sequence) -> _Sequence | None:
        """Who gives up its cells for `sequence`: background ones, then later ones, the latest first."""
        below = [s for s in self._active if (s.priority, s.rank) > (sequence.priority, sequence.rank)]
        return max(below, key=lambda s: (s.priority, s.rank), default=None)

    def _preempt(self, victim: _Sequence) -> None:
        """Back to the queue with its tokens, to be read again."""
        self._active.remove(victim)
        self._release(victim.slot)
        victim.slot, victim.length = -1, 0
        insort(self._waiting, victim)

    # -- beginning and ending ----------------------------------------------------------------------------------------

    def _better_later(self, sequence: _Sequence, reading: Iterable[_Sequence]) -> bool:
        """Whether a prompt that is being read in this step shares more with it than what is computed already."""
        if not self.limits.can_trim:
            return False
        tokens = sequence.tokens.array
        _, now = self._source(sequence.version, tokens)
        return any(
            common_prefix(other.tokens.array[: other.prompt_length], tokens) > max(now, other.length)
            for other in reading
        )

    def _source(self, version: str | None, tokens: Tokens) -> tuple[Remembered | _Sequence | None, int]:
        """(where the longest common prefix lies, its length); at least the last token is read again."""
        source: Remembered | _Sequence | None
        source, length = self.cache.best(version, tokens)
        if self.limits.can_trim:
            for other in self._active:
                if other.version == version:
                    common = common_prefix(other.tokens.array[: other.length], tokens)
                    if common > length:
                        source, length = other, common
        length = min(length, len(tokens) - 1)
        return (source, length) if length else (None, 0)

    def _start(self, sequence: _Sequence, reserved: int) -> bool:
        """Give it a slot and what is remembered of its prefix, if its remaining tokens will have room."""
        while True:
            source, shared = self._source(sequence.version, sequence.tokens.array)
            if self._has_room(sequence, source, shared, reserved):
                break
            paused = [s for s in self._active if s.priority > sequence.priority]
            if not paused:
                return False
            self._preempt(paused[-1])
        if isinstance(source, Remembered) and self._taken_over(source, shared):
            self.cache.remove(source)
            sequence.slot = source.slot
            self._cut(source.slot, shared)
        else:
            sequence.slot = self._free_slot(source)
            if source is not None:
                self.ledger.share(source.slot, sequence.slot, shared)
                self._operations.append(Copy(source.slot, sequence.slot, shared))
        sequence.length = shared
        if sequence.cached_tokens is None:
            sequence.cached_tokens = shared
        self._waiting.remove(sequence)
        if not sequence.begun:
            self._begun += 1
            sequence.begun = self._begun
        insort(self._active, sequence)
        return True

    def _has_room(self, sequence: _Sequence, source: Remembered | _Sequence | None, shared: int, reserved: int) -> bool:
        """Whether it fits beside all that run, at the cost of everything that is remembered."""
        if not self._slots and not len(self.cache):
            return False
        needed = len(sequence.tokens) - shared + reserved + HEADROOM * len(self._active)
        if self.ledger.free >= needed:
            return True
        pinned = [(s.slot, self.limits.cells) for s in self._active]
        if source is not None:
            pinned.append((source.slot, shared))
        return self.limits.cells - self.ledger.distinct(pinned) >= needed

    def _taken_over(self, source: Remembered, shared: int) -> bool:
        """A remembered sequence is continued, not copied, if all of it is used, or if there is no slot for a copy."""
        return shared >= len(source.tokens) - 1 or (not self._slots and len(self.cache) == 1)

    def _free_slot(self, source: Remembered | _Sequence | None) -> int:
        spare = source if isinstance(source, Remembered) else None
        if spare is not None:
            self.cache.touch(spare)
        if not self._slots:
            self._release(self.cache.pop_oldest(spare).slot)
        return self._slots.pop()

    def _end(self, sequence: _Sequence) -> None:
        """It leaves; its computed cells are remembered, unless its version is."""
        del self._all[sequence.request]
        if sequence.slot < 0:
            self._waiting.remove(sequence)
            return
        self._active.remove(sequence)
        if sequence.version in self._closed:
            self._release(sequence.slot)
            if all(other.version != sequence.version for other in self._all.values()):
                self.forget_version(sequence.version)  # one that gave way is remembered
                self._closed.discard(sequence.version)
            return
        # What people will come back to, and what was read for them beforehand, outlasts the judge's one-off prompts.
        keep = int(sequence.priority == Priority.INTERACTIVE or sequence.read_only)
        self._remember(sequence, keep)

    def _remember(self, sequence: _Sequence, keep: int) -> None:
        if sequence.length == 0:  # its first step was given up
            self._release(sequence.slot)
            return
        tokens = sequence.tokens.array[: sequence.length].copy()
        for entry in self.cache.add(sequence.slot, sequence.version, tokens, keep=keep):
            self._release(entry.slot)

    def _release(self, slot: int) -> None:
        self._cut(slot, 0)
        self._slots.append(slot)

    def _cut(self, slot: int, length: int) -> None:
        if self.ledger.length(slot) > length:
            self.ledger.truncate(slot, length)
            self._operations.append(Remove(slot, length))
