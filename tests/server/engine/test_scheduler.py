"""The scheduler against a brute-force model of llama.cpp's unified key-value cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.server.engine.scheduler import WARMING_EVERY, Copy, Limits, Sampled, Scheduler, StepPlan
from clawd.server.engine.types import Priority

LIMITS = Limits(
    cells=256,
    sequences=12,
    max_running=4,
    remembered=8,
    prompt_chunk=64,
    prompt_chunk_shared=8,
    adapter_slice=4,
)
PEOPLE, BACKGROUND = Priority.INTERACTIVE, Priority.BACKGROUND


@dataclass(eq=False)
class Cell:
    position: int
    token: int
    version: str | None


class UnifiedCache:
    """What llama.cpp does with the plans: cells are shared by reference and gone when nobody refers to them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.sequences: dict[int, list[Cell]] = {}

    def used(self) -> int:
        return len({id(cell) for cells in self.sequences.values() for cell in cells})

    def run(self, plan: StepPlan) -> None:
        for operation in plan.operations:
            if isinstance(operation, Copy):
                assert not self.sequences.get(operation.target), "copied onto a sequence in use"
                source = self.sequences[operation.source]
                assert len(source) >= operation.length
                self.sequences[operation.target] = source[: operation.length]
            else:
                self.sequences[operation.sequence] = self.sequences[operation.sequence][: operation.start]
        for row in plan.rows:
            cells = self.sequences.setdefault(row.sequence, [])
            assert row.start == len(cells), "positions are contiguous"
            assert all(cell.version == plan.version for cell in cells), "cells of another version"
            assert len(row.tokens)
            cells.extend(Cell(row.start + i, int(token), plan.version) for i, token in enumerate(row.tokens))
        assert self.used() <= self.limits.cells
        assert len(plan.rows) <= len({row.sequence for row in plan.rows}), "a sequence has one row"
        assert sum(cells != [] for cells in self.sequences.values()) <= self.limits.sequences


@dataclass
class Client:
    prompt: list[int]
    version: str | None
    priority: Priority
    answer: list[int]  # empty: read only
    told: int = 0


class World:
    """Runs a scheduler on requests whose answers are known beforehand, and checks each plan."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.scheduler = Scheduler(limits)
        self.cache = UnifiedCache(limits)
        self.clients: dict[str, Client] = {}
        self.plans: list[StepPlan] = []

    def ask(
        self,
        name: str,
        prompt: list[int],
        answer: int | list[int] = 3,
        version: str | None = None,
        priority: Priority = PEOPLE,
        owner: str | None = None,
    ) -> None:
        tokens = answer if isinstance(answer, list) else [1000 + i for i in range(answer)]
        self.clients[name] = Client(prompt, version, priority, tokens)
        self.scheduler.add(name, prompt, version, priority, read_only=not tokens, owner=owner)

    def cancel(self, name: str) -> None:
        if self.clients.pop(name, None):
            assert self.scheduler.cancel(name)

    def break_off(self) -> StepPlan | None:
        """A step whose rows are not computed, as when a person comes; only those of the background are."""
        plan = self.scheduler.plan()
        if plan is None or plan.for_people:
            return self.run(plan)
        self.cache.run(StepPlan(plan.operations, None, ()))
        self.scheduler.abandon(plan)
        assert self.scheduler.ledger.used == self.accounted(), "the ledger is exact"
        return plan

    def step(self) -> StepPlan | None:
        return self.run(self.scheduler.plan())

    def run(self, plan: StepPlan | None) -> StepPlan | None:
        if plan is None:
            assert not self.clients, "requests are left and nothing is planned"
            return None
        people = any(client.priority == PEOPLE for client in self.clients.values())
        assert plan.for_people == people, "a step is broken off only if nobody waits for it"
        self.cache.run(plan)
        self.plans.append(plan)
        sampled: dict[str, Sampled] = {}
        ended = []
        for row in plan.rows:
            client = self.clients[row.request]
            assert client.version == plan.version, "a step runs one version"
            whole = [cell.token for cell in self.cache.sequences[row.sequence]]
            known = client.prompt + client.answer[: client.told]
            assert whole == known[: len(whole)], "it reads what it was asked"
            assert row.samples == (len(whole) == len(known) and bool(client.answer))
            if row.samples:
                client.told += 1
                sampled[row.request] = Sampled(client.answer[client.told - 1], client.told == len(client.answer))
                if client.told == len(client.answer):
                    ended.append(row.request)
            elif len(whole) == len(known):
                ended.append(row.request)
        self.scheduler.complete(plan, sampled)
        for name in ended:
            del self.clients[name]
        assert self.scheduler.ledger.used == self.accounted(), "the ledger is exact"
        return plan

    def restore(self, tokens: list[int], version: str | None, *, refused: bool = False) -> int | None:
        """Cells that come from elsewhere, as from a file; `refused`: they turn out not to be usable."""
        slot = self.scheduler.adopt(version, np.array(tokens, np.int32))
        if slot is None:
            return None
        self.cache.run(StepPlan(self.scheduler.take_operations(), None, ()))
        assert not self.cache.sequences.get(slot), "the slot is empty"
        if refused:
            self.scheduler.disown(slot)
            # Nothing was written: the operation that would drop it finds nothing.
            self.cache.sequences[slot] = []
        else:
            self.cache.sequences[slot] = [Cell(i, token, version) for i, token in enumerate(tokens)]
        assert self.cache.used() <= self.cache.limits.cells
        assert self.scheduler.ledger.used == self.accounted(), "the ledger is exact"
        return slot

    def accounted(self) -> int:
        """Cells by brute force, without what the next plan's operations will remove."""
        pending = list(self.scheduler._operations)
        trial = UnifiedCache(replace(self.cache.limits))
        trial.sequences = {sequence: list(cells) for sequence, cells in self.cache.sequences.items()}
        trial.run(StepPlan(tuple(pending), None, ()))
        return trial.used()

    def finish(self, most: int = 10_000) -> int:
        for count in range(most):
            if self.step() is None:
                return count
        raise AssertionError("it never ends")

    def began(self, request: str) -> int:
        """Where the first row of a request began: what stood before was remembered."""
        return next(row.start for plan in self.plans for row in plan.rows if row.request == request)

    def read(self) -> int:
        """Prompt and answer tokens computed so far."""
        return sum(len(row.tokens) for plan in self.plans for row in plan.rows)


def test_one_request_is_read_in_chunks_then_decoded_token_by_token() -> None:
    world = World()
    world.ask("a", list(range(100)), answer=3)
    world.finish()
    assert [[(len(row.tokens), row.samples) for row in plan.rows] for plan in world.plans] == [
        [(64, False)],
        [(35, False)],
        [(1, True)],  # the last one apart, as if the prompt had been remembered
        [(1, True)],
        [(1, True)],
    ]


def test_decoding_goes_on_while_another_prompt_is_read_in_small_chunks() -> None:
    world = World()
    world.ask("a", [1, 2], answer=20)
    world.step()
    world.ask("b", list(range(50, 80)), answer=1)
    plan = world.step()
    assert plan is not None
    assert [(row.request, len(row.tokens)) for row in plan.rows] == [("a", 1), ("b", LIMITS.prompt_chunk_shared)]


def test_the_next_turn_takes_over_its_conversation() -> None:
    world = World()
    world.ask("turn1", list(range(40)), answer=[7, 8, 9])
    world.finish()
    world.ask("turn2", [*range(40), 7, 8, 9, 50, 51], answer=1)
    plan = world.step()
    assert plan is not None
    # The last sampled token was never fed, so its cell is not there.
    assert plan.rows[0].start == 42
    assert not [operation for operation in plan.operations if isinstance(operation, Copy)]


def test_a_branch_shares_cells_with_the_conversation_it_leaves() -> None:
    world = World()
    world.ask("a", [*range(40), 100, 101], answer=1)
    world.finish()
    before = world.scheduler.ledger.used
    world.ask("b", [*range(40), 200, 201], answer=1)
    plan = world.step()
    assert plan is not None
    assert plan.operations == (Copy(0, plan.rows[0].sequence, 40),)
    world.finish()
    assert world.scheduler.ledger.used == before + 2
    assert len(world.scheduler.cache) == 2


def test_the_last_prompt_token_is_always_read_again() -> None:
    world = World()
    for name in ("a", "b"):
        world.ask(name, list(range(30)), answer=1)
        world.finish()
    assert world.plans[-1].rows[0].start == 29
    assert world.plans[-1].rows[0].samples


def test_nothing_is_shared_across_versions() -> None:
    world = World()
    for version in (None, "v1", "v2"):
        world.ask(f"{version}", list(range(30)), answer=1, version=version)
        world.finish()
        assert world.began(f"{version}") == 0


def test_the_same_prompt_asked_three_times_at_once_is_read_once() -> None:
    world = World()
    for name in "abc":
        world.ask(name, list(range(60)), answer=2, priority=BACKGROUND)
    world.finish()
    assert world.read() == 60 + 2 * 1 + 3 * 1  # one reading, the last token twice more, and one fed token each


@pytest.mark.parametrize("tail", [0, 5])
def test_eight_prompts_that_begin_alike_are_read_once_as_far_as_they_do(tail: int) -> None:
    world = World(replace(LIMITS, max_running=8, cells=1024, sequences=16))
    for index in range(8):
        world.ask(f"r{index}", [*range(150), *(9000 + 100 * index + i for i in range(tail))], answer=2)
    world.finish()
    apart = max(tail, 1) + 1  # what differs, or the last token, and one fed token each
    assert world.read() == 150 + (8 * apart if tail else 7 * apart + 1)


def test_versions_take_turns_in_slices() -> None:
    world = World()
    world.ask("a", [1], answer=20, version="v1")
    world.ask("b", [2], answer=20, version="v2")
    world.finish()
    order = [plan.version for plan in world.plans]
    assert order[:12] == ["v1"] * 4 + ["v2"] * 4 + ["v1"] * 4


def test_a_long_prompt_of_one_version_does_not_hold_up_the_stream_of_another() -> None:
    world = World(replace(LIMITS, prompt_chunk_shared=32))
    world.ask("stream", [1], answer=40, version="v1")
    world.step()
    world.ask("long", list(range(200)), answer=1, version="v2")
    world.finish()
    versions = [plan.version for plan in world.plans]
    longest = max(len(run) for run in "".join("x" if v == "v2" else " " for v in versions[:20]).split())
    assert longest == 1  # 32 rows use up the slice of four steps


def test_background_pauses_for_people_and_goes_on_where_it_was() -> None:
    world = World()
    world.ask("judge", [5, 6, 7], answer=10, priority=BACKGROUND)
    world.step()
    world.step()
    world.ask("person", [1, 2], answer=4)
    assert world.scheduler.counts() == (0, 1, 1)
    steps = [world.step() for _ in range(5)]
    assert all(plan is not None and [row.request for row in plan.rows] == ["person"] for plan in steps)
    plan = world.step()
    assert plan is not None and plan.rows[0].request == "judge"
    assert plan.rows[0].start == 3  # its cells were kept


def test_reading_for_a_new_version_gets_on_while_people_never_stop_talking() -> None:
    world = World(replace(LIMITS, cells=1024))
    world.ask("warm", list(range(60)), answer=[], version="v2", priority=BACKGROUND)
    world.ask("judge", [9, 9], answer=3, priority=BACKGROUND)
    world.ask("person", [1], answer=6 * WARMING_EVERY)
    while "person" in world.clients:
        world.step()
    assert "warm" not in world.clients
    assert "judge" in world.clients
    people = sum(plan.version is None for plan in world.plans)
    assert people / len(world.plans) > 0.95


def test_people_take_the_cells_of_background_requests() -> None:
    world = World()
    world.ask("judge", list(range(200)), answer=30, priority=BACKGROUND)
    for _ in range(30):
        world.step()
    world.ask("person", list(range(1000, 1200)), answer=5)
    world.finish()
    served = [row.request for plan in world.plans for row in plan.rows]
    assert served.index("person") < len(served) - 1
    first_after = next(i for i, plan in enumerate(world.plans) if plan.rows[0].request == "person")
    after = [plan.rows[0].request for plan in world.plans[first_after:]]
    assert after == sorted(after, key=lambda name: name != "person"), "the person is served to the end first"
    assert world.clients == {}


def test_when_cells_run_out_the_youngest_gives_way_and_is_served_later() -> None:
    world = World()
    for index in range(3):
        world.ask(f"r{index}", [index * 100 + i for i in range(40)], answer=100)
    world.finish()
    ends = {row.request: i for i, plan in enumerate(world.plans) for row in plan.rows}
    assert ends["r0"] < ends["r2"] and ends["r1"] < ends["r2"]
    assert world.read() > 3 * 139, "somebody was read twice"
    oldest = [row for plan in world.plans for row in plan.rows if row.request == "r0"]
    assert sum(len(row.tokens) for row in oldest) == 139, "but not the oldest"


@pytest.mark.parametrize("cells", [255, 256])  # the older one takes the last cell, or the younger one
def test_who_gave_way_goes_on_before_those_who_came_later(cells: int) -> None:
    world = World(replace(LIMITS, cells=cells, max_running=2, remembered=0))
    for index in range(2):
        world.ask(f"r{index}", [index * 100 + i for i in range(40)], answer=120)
    while "r0" in world.clients:
        world.step()
        world.ask(f"late{len(world.plans)}", [7], answer=1)
    world.finish()
    rows = [row for plan in world.plans for row in plan.rows]
    read = [row.start + len(row.tokens) for row in rows if row.request == "r1"]
    assert read != sorted(read), "r1 gave way and was read again"
    gave_way = next(i for i in range(1, len(read)) if read[i] < read[i - 1])
    served = [row.request for row in rows if row.request != "r0"]
    assert served[: gave_way + 1] == ["r1"] * (gave_way + 1), "before anyone who came later began"


def test_small_requests_do_not_slip_past_a_large_one_that_waits_for_room() -> None:
    world = World(replace(LIMITS, remembered=0))
    world.ask("running", list(range(100)), answer=60)
    world.step()
    world.ask("large", [1000 + i for i in range(180)], answer=1)
    for index in range(5):
        world.ask(f"small{index}", [2000 + index] * 20, answer=1)
    world.finish()
    begun = list(dict.fromkeys(row.request for plan in world.plans for row in plan.rows))
    assert begun[:2] == ["running", "large"]


def test_the_only_remembered_conversation_is_continued_when_there_is_no_slot_for_a_copy() -> None:
    world = World(replace(LIMITS, sequences=2, max_running=1, remembered=1))
    world.ask("person", list(range(40)), answer=1)
    world.finish()
    world.ask("judge", [900, 901], answer=9, priority=BACKGROUND)
    world.step()
    world.ask("branch", [*range(30), 77, 78], answer=1)
    plan = world.step()
    assert plan is not None
    assert (plan.rows[0].request, plan.rows[0].start) == ("branch", 30)
    world.finish()


def test_a_request_as_long_as_all_cells_is_served_among_others() -> None:
    world = World()
    for index in range(6):
        world.ask(f"r{index}", [index * 1000 + i for i in range(60)], answer=20)
    world.ask("huge", [9000 + i for i in range(LIMITS.cells - 1)], answer=1)
    for index in range(6, 9):
        world.ask(f"r{index}", [index * 1000 + i for i in range(60)], answer=20)
    world.finish()


def test_a_prompt_longer_than_all_cells_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="fit"):
        World().ask("a", list(range(LIMITS.cells + 1)))


def test_requests_begin_in_order_of_arrival() -> None:
    world = World()
    for index in range(10):
        world.ask(f"r{index}", [index], answer=5)
    world.finish()
    begun = list(dict.fromkeys(row.request for plan in world.plans for row in plan.rows))
    assert begun == [f"r{index}" for index in range(10)]
    assert max(len(plan.rows) for plan in world.plans) == LIMITS.max_running


def test_the_least_recently_used_conversation_is_forgotten_first() -> None:
    world = World()
    for index in range(LIMITS.remembered + 1):
        world.ask(f"r{index}", [index, 1, 2], answer=1)
        world.finish()
    starts = {}
    for index in (LIMITS.remembered, 0):
        world.ask(f"again{index}", [index, 1, 2], answer=1)
        world.finish()
        starts[index] = world.began(f"again{index}")
    assert starts == {LIMITS.remembered: 2, 0: 0}


def test_what_the_judge_asked_is_forgotten_before_what_people_asked() -> None:
    world = World(replace(LIMITS, remembered=2))
    world.ask("person", [1, 2, 3, 4], answer=1)
    world.finish()
    for index in range(5):
        world.ask(f"judge{index}", [50 + index, 9, 9, 9], answer=1, priority=BACKGROUND)
        world.finish()
    world.ask("again", [1, 2, 3, 4], answer=1)
    plan = world.step()
    assert plan is not None and plan.rows[0].start == 3


def test_a_forgotten_version_leaves_no_cells() -> None:
    world = World()
    world.ask("done", list(range(20)), answer=1, version="v1")
    world.finish()
    world.ask("running", [1, 2, 3], answer=5, version="v1")
    world.step()
    world.scheduler.forget_version("v1")
    world.finish()
    assert world.scheduler.ledger.used == 0
    assert len(world.scheduler.cache) == 0
    assert world.scheduler._closed == set()


def test_cancelled_work_is_remembered() -> None:
    world = World()
    world.ask("a", list(range(60)), answer=5)
    world.step()
    world.cancel("a")
    assert world.step() is None
    world.ask("b", list(range(60)), answer=5)
    plan = world.step()
    assert plan is not None and plan.rows[0].start == 59


def test_a_step_that_was_broken_off_is_done_again_after_the_person() -> None:
    world = World()
    world.ask("judge", list(range(40)), answer=3, priority=BACKGROUND)
    world.step()
    assert world.break_off() is not None
    world.ask("person", [1, 2], answer=2)
    world.finish()
    order = list(dict.fromkeys(row.request for plan in world.plans[1:] for row in plan.rows))
    assert order == ["person", "judge"]
    assert world.read() == (40 + 2) + (2 + 1), "nothing is lost but the step"


def test_a_request_whose_first_step_was_broken_off_can_be_cancelled() -> None:
    world = World()
    world.ask("judge", list(range(40)), answer=3, priority=BACKGROUND)
    world.break_off()
    world.cancel("judge")
    assert world.step() is None
    assert len(world.scheduler.cache) == 0


def test_what_comes_from_elsewhere_is_found_as_if_it_had_been_read_here() -> None:
    world = World()
    assert world.restore(list(range(100)), "v1") is not None
    world.ask("other", list(range(100)), answer=1)
    world.ask("next", [*range(100), 7, 8], answer=1, version="v1")
    world.finish()
    assert (world.began("next"), world.began("other")) == (100, 0)


def test_what_comes_from_elsewhere_takes_no_cells_of_who_runs() -> None:
    world = World()
    world.ask("done", [5000 + i for i in range(60)], answer=1)
    world.finish()
    world.ask("running", [9000 + i for i in range(150)], answer=50)
    for _ in range(4):
        world.step()
    assert world.restore(list(range(110)), None) is None
    assert world.restore(list(range(90)), None) is not None, "what is remembered makes room"
    world.finish()


def test_memory_that_cannot_be_trimmed_is_continued_whole_or_read_again() -> None:
    world = World(replace(LIMITS, can_trim=False))
    world.ask("turn1", list(range(40)), answer=[7, 8])
    world.finish()
    world.ask("turn2", [*range(40), 7, 8, 50], answer=1)
    plan = world.step()
    assert plan is not None and plan.rows[0].start == 41
    world.ask("other", [*range(30), 99], answer=1)
    world.finish()
    assert world.began("other") == 0
    assert not any(isinstance(op, Copy) or op.start for plan in world.plans for op in plan.operations)


requests = st.tuples(
    st.sampled_from(["shared", "own", "long"]),
    st.integers(1, 120),
    st.integers(0, 40),
    st.sampled_from([None, None, "v1", "v2"]),
    st.sampled_from([PEOPLE, PEOPLE, BACKGROUND]),
    st.sampled_from([None, "ann", "ann", "bob"]),
)
actions = st.one_of(
    requests,
    st.tuples(st.just("step"), st.integers(1, 30)),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("break off")),
    st.tuples(st.just("forget"), st.sampled_from(["v1", "v2"])),
    st.tuples(st.just("restore"), st.integers(1, 150), st.sampled_from([None, "v1"]), st.booleans()),
)
shapes = st.builds(
    Limits,
    cells=st.integers(170, 400),
    sequences=st.integers(4, 12),
    max_running=st.integers(1, 4),
    remembered=st.integers(0, 4),
    prompt_chunk=st.integers(16, 64),
    prompt_chunk_shared=st.integers(1, 16),
    adapter_slice=st.integers(1, 8),
    can_trim=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(limits=shapes, script=st.lists(actions, max_size=40))
def test_any_workload_ends_with_exact_accounts(limits: Limits, script: list[tuple[object, ...]]) -> None:
    """Every request ends; each plan is checked by `World` and `UnifiedCache` on the way."""
    limits = replace(limits, sequences=max(limits.sequences, limits.max_running + limits.remembered))
    world = World(limits)
    for number, action in enumerate(script):
        if action[0] == "step":
            for _ in range(int(str(action[1]))):
                world.step()
        elif action[0] == "break off":
            world.break_off()
        elif action[0] == "cancel":
            world.cancel(f"r{action[1]}")
        elif action[0] == "forget":
            world.scheduler.forget_version(str(action[1]))
        elif action[0] == "restore":
            length, version, refused = action[1:]
            assert isinstance(length, int) and (version is None or isinstance(version, str))
            world.restore(list(range(length)), version, refused=bool(refused))
        else:
            kind, length, answer, version, priority, owner = action
            assert isinstance(length, int) and isinstance(answer, int) and isinstance(priority, Priority)
            assert version is None or isinstance(version, str)
            assert owner is None or isinstance(owner, str)
            first = number * 1000 if kind == "own" else 0
            prompt = [first + i for i in range(length)] + ([number] if kind == "shared" else [])
            answer = min(answer, 170 - len(prompt))
            world.ask(f"r{number}", prompt, answer or [], version, priority, owner)
    world.finish()
    assert world.scheduler._closed == set()
    held = sum(len(entry.tokens) for entry in world.scheduler.cache)
    assert world.scheduler.ledger.used <= held
    assert len(world.scheduler.cache) <= limits.remembered
