from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.config import LearnSettings
from clawd.errors import TransitionRefused
from clawd.learner.job import Outcome
from clawd.learner.jobs import ServedModel, folder_of
from clawd.learner.schedule import Updates
from clawd.learner.trust import Trust
from clawd.store.records import NewTurn, Version
from tests.learner.parts import BASE, ScriptedBackend, World, words, write_result


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    assert made.store.verify() == []
    made.store.close()


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend()


def counts(world: World) -> dict[str, int]:
    return world.store.signals.counts()


def test_an_update_runs_from_waiting_samples_to_a_staged_version(world: World, backend: ScriptedBackend) -> None:
    updates = world.updates(backend)
    world.samples(1)
    updates.tick()
    assert backend.jobs == []  # one sample is missing
    assert backend.prepared == [(world.data.root / "base.gguf", BASE, world.data.cache)]
    world.samples(1)
    updates.tick()
    updates.tick()
    assert len(backend.jobs) == 1 and counts(world) == {"claimed": 2}
    assert len(backend.prepared) == 1
    assert world.events("update.started") == [{"adapter": "default", "number": 1, "samples": 2}]

    backend.succeed()
    updates.tick()
    (version,) = world.store.updates.staged_versions()
    assert version.folder == world.data.adapters / world.user.adapter.id / "v0001"
    assert sorted(path.name for path in version.folder.iterdir()) == [
        "adapter.gguf",
        "adapter_config.json",
        "adapter_model.safetensors",
        "manifest.json",
        "optimizer.safetensors",
    ]
    assert backend.rings == ["server"]
    (event,) = world.events("update.staged")
    assert event["metrics"] == {"train/loss": 0.25} and event["seconds"] >= 0.0


def test_the_job_holds_what_was_served_and_the_hinted_prompts(world: World, backend: ScriptedBackend) -> None:
    world.samples(2, hint="Mention the oven.")
    world.updates(backend).tick()
    job, sample = backend.job(), backend.samples()[0]
    turn = world.store.turns.get(sample.turn_id)
    assert (job.number, job.parent, job.adapter_name, job.base_fingerprint) == (1, None, "default", BASE)
    assert sample.prompt_ids == turn.prompt_ids and sample.response_ids == turn.response_ids
    assert sample.rollout_logprobs == turn.logprobs and sample.reward == -1 and sample.rollout_version is None
    (hint,) = sample.hints
    assert words(hint.prompt_ids).startswith("<user>How do I bake bread?") and "Mention the oven." in words(
        hint.prompt_ids
    )


def test_the_next_update_starts_from_the_active_version(world: World, backend: ScriptedBackend) -> None:
    updates = world.updates(backend)
    world.samples(2)
    updates.tick()
    backend.succeed()
    updates.tick()
    (version,) = world.store.updates.staged_versions()
    world.store.updates.activate(version.id)
    world.samples(2)
    updates.tick()
    assert backend.job().parent == version.folder and backend.job().number == 2


def test_samples_that_arrive_during_an_update_make_exactly_one_more(world: World, backend: ScriptedBackend) -> None:
    """D5."""
    updates = world.updates(backend)
    first = world.samples(2)
    updates.tick()
    second = world.samples(2)
    updates.tick()
    assert len(backend.jobs) == 1
    backend.succeed()
    updates.tick()
    updates.tick()
    assert len(backend.jobs) == 1  # the staged version isn't served yet
    world.store.updates.activate(world.store.updates.staged_versions()[0].id)
    for _ in range(3):
        updates.tick()
    assert len(backend.jobs) == 2 and [s.sample_id for s in backend.samples()] == second
    backend.succeed()
    updates.tick()
    world.store.updates.activate(world.store.updates.staged_versions()[0].id)
    updates.tick()
    assert len(backend.jobs) == 2
    assert {world.store.signals.get(sample_id).state for sample_id in first + second} == {"used"}


def test_one_update_at_a_time_whatever_the_adapter(world: World, backend: ScriptedBackend) -> None:
    anna, _ = world.store.people.add("anna")
    world.samples(2)
    world.samples(2, user=anna)
    updates = world.updates(backend)
    updates.tick()
    updates.tick()
    assert len(backend.jobs) == 1
    backend.succeed()
    updates.tick()
    assert len(backend.jobs) == 2 and backend.job().adapter_name == "anna"


def test_a_refused_update_quarantines_its_samples(world: World, backend: ScriptedBackend) -> None:
    first, second = world.samples(2)
    updates = world.updates(backend)
    updates.tick()
    backend.end(Outcome(state="refused", reason="no signal", metrics={"a/b": 1.0}, quarantined={first: "too long"}))
    updates.tick()
    assert counts(world) == {"quarantined": 2}
    assert world.store.updates.newest(world.user.adapter.id).reason == "no signal"
    (event,) = world.events("update.refused")
    assert (event["reason"], event["metrics"], event["left_out"]) == ("no signal", {"a/b": 1.0}, {first: "too long"})
    assert second not in event["left_out"]


def test_samples_that_could_not_be_used_are_left_out_of_a_staged_version(
    world: World, backend: ScriptedBackend
) -> None:
    first, second = world.samples(2)
    updates = world.updates(backend)
    updates.tick()
    backend.succeed(quarantined={first: "longer than learn.max_sample_tokens"})
    updates.tick()
    assert world.store.signals.get(first).state == "quarantined"
    assert world.store.signals.get(second).state == "claimed"


@pytest.mark.parametrize(
    ("outcome", "how", "reason"),
    [
        (Outcome(state="failed", reason="no memory"), "exit status 1", "no memory"),
        (None, "signal SIGKILL", "its process ended without a word: signal SIGKILL"),
    ],
)
def test_a_failed_update_is_tried_again_after_a_pause(
    world: World, backend: ScriptedBackend, outcome: Outcome | None, how: str, reason: str
) -> None:
    world.samples(2)
    updates = world.updates(backend, attempts=2)
    updates.tick()
    backend.end(outcome, how)
    updates.tick()
    assert counts(world) == {"waiting": 2} and len(backend.jobs) == 1
    (event,) = world.events("update.failed")
    assert event["reason"] == reason
    backend.now += event["next_try_in_s"] + 1
    updates.tick()
    assert len(backend.jobs) == 2
    backend.end(outcome, how)
    updates.tick()
    assert counts(world) == {"quarantined": 2}


def test_an_update_that_takes_too_long_is_cancelled(world: World, backend: ScriptedBackend) -> None:
    world.samples(2)
    updates = world.updates(backend, timeout_s=10.0, pause_when_busy=False)
    updates.tick()
    backend.now = 9.0
    updates.tick()
    assert not backend.runs[0].cancelled
    backend.now = 10.5
    updates.tick()
    assert backend.runs[0].cancelled and counts(world) == {"waiting": 2}
    assert "10 s (learn.timeout_s)" in world.events("update.failed")[0]["reason"]


def test_pauses_for_people_are_no_part_of_that_time(world: World, backend: ScriptedBackend) -> None:
    world.samples(2)
    updates = world.updates(backend, timeout_s=10.0, max_pause_s=100.0)
    updates.tick()
    backend.now = 109.0
    updates.tick()
    assert not backend.runs[0].cancelled
    backend.now = 110.5
    updates.tick()
    assert backend.runs[0].cancelled


def test_stopping_gives_the_samples_back_without_blame(world: World, backend: ScriptedBackend) -> None:
    """D6."""
    sample_id, _ = world.samples(2)
    updates = world.updates(backend)
    updates.tick()
    updates.stop()
    assert backend.runs[0].cancelled
    sample = world.store.signals.get(sample_id)
    assert (sample.state, sample.failures) == ("waiting", 0)
    assert world.events("update.failed")[0]["reason"] == "interrupted"


def test_a_backend_that_cannot_start_fails_the_update(world: World, backend: ScriptedBackend) -> None:
    world.samples(2)
    backend.refuses_to_start = True
    world.updates(backend).tick()
    assert counts(world) == {"waiting": 2}
    assert world.events("update.failed")[0]["reason"] == "it could not be begun: no memory"


def test_a_missing_trainer_blocks_updates_and_says_so_once(world: World, backend: ScriptedBackend) -> None:
    world.samples(2)
    updates = world.updates(backend)
    backend.problem = "torch can't be found"
    updates.tick()
    updates.tick()
    assert [event["reason"] for event in world.events("update.blocked")] == ["torch can't be found"]
    assert counts(world) == {"waiting": 2}
    backend.problem = None
    updates.tick()
    assert len(backend.jobs) == 1


def test_another_base_than_the_active_versions_blocks_that_adapter_alone(
    world: World, backend: ScriptedBackend
) -> None:
    updates = world.updates(backend)
    world.samples(2)
    updates.tick()
    backend.succeed()
    updates.tick()
    world.store.updates.activate(world.store.updates.staged_versions()[0].id)

    anna, _ = world.store.people.add("anna")
    world.base = "c" * 64
    world.samples(2)
    world.samples(2, user=anna)
    other = world.updates(backend, served=ServedModel(world.data.root / "other.gguf", "c" * 64, "other"))
    other.tick()
    (event,) = world.events("update.blocked")
    assert event["adapter"] == "default" and "version 1 was made for the base bbbbbbbbbbbb" in event["reason"]
    assert backend.job().adapter_name == "anna"


def test_learning_switched_off_begins_nothing(world: World, backend: ScriptedBackend) -> None:
    world.samples(2)
    world.updates(backend, enabled=False).tick()
    assert backend.jobs == [] and counts(world) == {"waiting": 2}


class TestRecovery:
    def test_a_dead_process_without_a_result_was_interrupted(self, world: World, backend: ScriptedBackend) -> None:
        sample_id, _ = world.samples(2)
        world.updates(backend).tick()
        world.updates(ScriptedBackend()).recover()
        sample = world.store.signals.get(sample_id)
        assert (sample.state, sample.failures) == ("waiting", 0)
        assert world.events("update.failed")[0]["reason"] == "interrupted"

    def test_a_finished_result_is_published(self, world: World, backend: ScriptedBackend) -> None:
        world.samples(2)
        world.updates(backend).tick()
        backend.succeed()
        world.updates(ScriptedBackend()).recover()
        assert [version.number for version in world.store.updates.staged_versions()] == [1]

    def test_a_damaged_result_is_not(self, world: World, backend: ScriptedBackend) -> None:
        world.samples(2)
        world.updates(backend).tick()
        backend.succeed()
        (backend.jobs[0] / "result" / "adapter.gguf").write_text("torn")
        world.updates(ScriptedBackend()).recover()
        assert world.store.updates.staged_versions() == []
        assert "adapter.gguf is not as its manifest says" in world.events("update.failed")[0]["reason"]
        assert counts(world) == {"waiting": 2}

    def test_a_refusal_counts_too(self, world: World, backend: ScriptedBackend) -> None:
        world.samples(2)
        world.updates(backend).tick()
        backend.end(Outcome(state="refused", reason="no signal"))
        world.updates(ScriptedBackend()).recover()
        assert counts(world) == {"quarantined": 2}

    def test_a_claim_without_a_job_folder_was_interrupted(self, world: World, backend: ScriptedBackend) -> None:
        world.samples(2)
        update = world.store.updates.claim(world.user.adapter.id, BASE, 2, {})
        assert not folder_of(world.data, update.id).exists()
        world.updates(backend).recover()
        assert counts(world) == {"waiting": 2}


def test_whether_an_adapter_is_blocked_is_known_across_restarts(world: World, backend: ScriptedBackend) -> None:
    world.samples(2)
    backend.problem = "torch can't be found"
    world.updates(backend).tick()
    again = world.updates(backend)
    again.recover()
    again.tick()
    assert len(world.events("update.blocked")) == 1 and world.events("update.unblocked") == []
    backend.problem = None
    last = world.updates(backend)
    last.recover()
    last.tick()
    assert world.events("update.unblocked") == [{"adapter": "default"}]


class TestWhen:
    """learn.when, limits, and a person who asks."""

    def reasons(self, world: World) -> list[str]:
        return [event["reason"] for event in world.events("update.blocked")]

    def test_manual_begins_only_when_somebody_asks(self, world: World, backend: ScriptedBackend) -> None:
        updates = world.updates(backend, when="manual", samples_per_update=16)
        world.samples(20)
        updates.tick()
        assert backend.jobs == []
        assert "clawd train --now" in self.reasons(world)[0]
        world.store.lifecycle.ask_update(world.user.adapter.id)
        updates.tick()
        assert counts(world) == {"claimed": 16, "waiting": 4}
        backend.succeed()
        updates.tick()
        world.store.updates.activate(world.store.updates.staged_versions()[0].id)
        updates.tick()
        assert len(backend.jobs) == 1  # asked once, done once

    def test_who_asks_gets_an_update_of_what_there_is(self, world: World, backend: ScriptedBackend) -> None:
        updates = world.updates(backend, samples_per_update=16)
        world.store.lifecycle.ask_update(world.user.adapter.id)
        updates.tick()
        assert not world.store.lifecycle.is_update_asked(world.user.adapter.id)  # there was nothing to learn from
        world.samples(1)
        updates.tick()
        assert backend.jobs == []
        world.store.lifecycle.ask_update(world.user.adapter.id)
        updates.tick()
        assert counts(world) == {"claimed": 1}

    def test_idle_waits_for_quiet(self, world: World, backend: ScriptedBackend) -> None:
        updates = world.updates(backend, when="idle", idle_minutes=10)
        world.samples(2)
        backend.wall = world.store.turns.get(world.turn()).finished_at + 599
        updates.tick()
        assert backend.jobs == []
        assert self.reasons(world) == ['10 minutes without a request (learn.when = "idle")']
        backend.wall += 2
        updates.tick()
        assert len(backend.jobs) == 1
        assert len(world.events("update.unblocked")) == 1

    def test_a_request_that_runs_is_no_quiet_and_the_judges_own_is(
        self, world: World, backend: ScriptedBackend
    ) -> None:
        turn = world.store.turns.get(world.turn())
        running = NewTurn(
            session_id=turn.session_id,
            user_id=turn.user_id,
            adapter_id=None,
            version_id=None,
            base_fingerprint=BASE,
            kind="side",
            kind_evidence="header",
            prompt_ids=(1,),
            messages=[],
            request_hash="q",
        )
        world.store.turns.begin(running)  # of the judge: the bare base, aside
        assert world.store.lifecycle.last_request_at() == turn.finished_at
        world.store.turns.begin(dataclasses.replace(running, kind="main"))
        assert world.store.lifecycle.last_request_at() > turn.finished_at

    def test_in_a_window_all_that_is_due_is_trained_and_nothing_after(
        self, world: World, backend: ScriptedBackend
    ) -> None:
        updates = world.updates(backend, when="window", cron="0 2 * * *")
        world.samples(4)
        updates.tick()
        assert backend.jobs == []
        backend.wall += 86400
        for number in (1, 2):
            updates.tick()
            assert len(backend.jobs) == number
            backend.succeed()
            updates.tick()
            world.store.updates.activate(world.store.updates.staged_versions()[0].id)
        updates.tick()
        world.samples(2)
        updates.tick()
        assert len(backend.jobs) == 2  # it is over
        assert "learn.cron" in self.reasons(world)[-1]

    def test_a_suspended_machine_catches_up_once(self, world: World, backend: ScriptedBackend) -> None:
        """D4."""
        updates = world.updates(backend, when="window", cron="0 2 * * *")
        updates.tick()
        backend.wall += 4 * 86400
        world.samples(2)
        updates.tick()
        backend.succeed()
        updates.tick()
        world.store.updates.activate(world.store.updates.staged_versions()[0].id)
        updates.tick()
        (event,) = world.events("window.opened")
        assert (event["times"], event["late"]) == (4, True)
        assert len(backend.jobs) == 1

    def test_limits_hold_an_update_back_until_they_are_kept(self, world: World, backend: ScriptedBackend) -> None:
        updates = world.updates(backend, max_load=2.0)
        world.samples(2)
        backend.machine = dataclasses.replace(backend.machine, load=5.0)
        updates.tick()
        updates.tick()
        assert self.reasons(world) == ["a load average of 2 or less (learn.max_load)"]
        backend.machine = dataclasses.replace(backend.machine, load=1.0)
        backend.now += 60
        updates.tick()
        assert len(backend.jobs) == 1


class TestTrust:
    def refuse(self, world: World, backend: ScriptedBackend, updates: Updates, reason: str = "too far") -> None:
        world.samples(2)
        updates.tick()
        backend.end(Outcome(state="refused", reason=reason))
        updates.tick()

    def test_refusals_in_a_row_halt_the_adapter_until_somebody_has_looked(
        self, world: World, backend: ScriptedBackend
    ) -> None:
        updates, adapter = world.updates(backend, halt_after=3), world.user.adapter
        for _ in range(3):
            assert world.store.lifecycle.halted(adapter.id) is None
            self.refuse(world, backend, updates)
        halt = world.store.lifecycle.halted(adapter.id)
        assert halt is not None and halt.reason == "3 updates in a row came to nothing, the last one: too far"
        world.samples(2)
        updates.tick()
        assert len(backend.jobs) == 3
        assert "clawd adapter resume default" in world.events("update.blocked")[0]["reason"]
        world.store.lifecycle.ask_update(adapter.id)
        updates.tick()
        assert len(backend.jobs) == 3  # asking isn't looking
        world.store.lifecycle.resume(adapter.id)
        updates.tick()
        assert len(backend.jobs) == 4
        backend.end(Outcome(state="refused", reason="too far"))
        updates.tick()
        assert world.store.lifecycle.halted(adapter.id) is None  # it counts from where somebody looked

    def test_a_good_one_between_and_blameless_ones_dont_count(self, world: World, backend: ScriptedBackend) -> None:
        updates, adapter = world.updates(backend, halt_after=2), world.user.adapter
        self.refuse(world, backend, updates)
        self.refuse(world, backend, updates, reason="No signal: all rewards are equal.")
        world.samples(2)
        updates.tick()
        backend.succeed()
        updates.tick()
        world.store.updates.activate(world.store.updates.staged_versions()[0].id)
        self.refuse(world, backend, updates)
        world.samples(2)
        updates.tick()
        updates.stop()
        assert world.store.lifecycle.halted(adapter.id) is None

    def test_another_adapter_goes_on(self, world: World, backend: ScriptedBackend) -> None:
        updates = world.updates(backend, halt_after=1)
        self.refuse(world, backend, updates)
        anna, _ = world.store.people.add("anna")
        world.samples(2, user=anna)
        updates.tick()
        assert backend.job().adapter_name == "anna"

    def served(self, world: World, count: int) -> list[Version]:
        backend = ScriptedBackend()
        updates = world.updates(backend)
        for _ in range(count):
            world.samples(2)
            updates.tick()
            backend.succeed()
            updates.tick()
            world.store.updates.activate(world.store.updates.staged_versions()[0].id)
        return world.store.updates.versions(world.user.adapter.id)

    def test_a_run_of_bad_versions_goes_back_to_the_last_good_one(self, world: World) -> None:
        trust = Trust(world.store, LearnSettings(roll_back_after=2))
        versions = self.served(world, 4)
        assert trust.hold_against(versions[2], "nonsense") is None
        assert world.store.lifecycle.waiting_switches() == []
        assert trust.hold_against(versions[3], "nonsense too") == versions[1]
        (switch,) = world.store.lifecycle.waiting_switches()
        assert (switch.version_id, switch.asked_by) == (versions[1].id, "learner")
        assert "2 versions in a row turned out bad, the last one: nonsense too" in switch.why
        assert world.store.lifecycle.halted(world.user.adapter.id) is not None
        world.store.lifecycle.grant(switch)
        assert world.store.updates.active_version(world.user.adapter.id).number == 2

    def test_bad_from_the_beginning_goes_back_to_the_base(self, world: World) -> None:
        trust = Trust(world.store, LearnSettings(roll_back_after=2))
        for version in self.served(world, 2):
            trust.hold_against(version, "nonsense")
        (switch,) = world.store.lifecycle.waiting_switches()
        assert switch.version_id is None

    def test_an_old_versions_fault_changes_nothing_that_serves(self, world: World) -> None:
        trust = Trust(world.store, LearnSettings(roll_back_after=1))
        versions = self.served(world, 3)
        assert trust.hold_against(versions[0], "nonsense") is None
        assert world.store.lifecycle.waiting_switches() == []


def test_what_was_trained_from_a_version_that_serves_no_longer_is_given_up(
    world: World, backend: ScriptedBackend
) -> None:
    """A rollback during an update: its result would undo it. Its samples wait again, and nobody is blamed."""
    updates = world.updates(backend)
    world.samples(2)
    updates.tick()
    backend.succeed()
    updates.tick()
    world.store.updates.activate(world.store.updates.staged_versions()[0].id)
    sample, _ = world.samples(2)
    updates.tick()
    world.store.lifecycle.use(world.user.adapter.id, None)
    backend.succeed()
    updates.tick()
    assert world.store.updates.staged_versions() == []
    assert world.events("update.failed")[0]["reason"] == "another version was chosen meanwhile"
    assert (world.store.signals.get(sample).state, world.store.signals.get(sample).failures) == ("claimed", 0)
    assert backend.job().parent is None and backend.job().number == 2  # the next one begins from what serves


class TestGate:
    """What the gate says, through the real store."""

    def staged(self, world: World, backend: ScriptedBackend, updates: Updates, **told: object) -> None:
        world.samples(2)
        updates.tick()
        write_result(backend.jobs[-1])
        backend.end(Outcome.model_validate({"state": "staged", **told}))
        updates.tick()

    def test_held_back_samples_wait_again_and_the_others_are_used(self, world: World, backend: ScriptedBackend) -> None:
        updates = world.updates(backend)
        first, second = world.samples(2)
        updates.tick()
        write_result(backend.jobs[-1])
        backend.end(Outcome(state="staged", held_back=[second]))
        updates.tick()
        assert [world.store.signals.get(one).state for one in (first, second)] == ["claimed", "waiting"]
        world.store.updates.activate(world.store.updates.to_load()[0].id)
        assert [world.store.signals.get(one).state for one in (first, second)] == ["used", "waiting"]
        world.samples(1)
        updates.tick()
        assert second in {sample.sample_id for sample in backend.samples()}

    def test_a_doubted_version_is_not_the_servers_until_a_person_agrees(
        self, world: World, backend: ScriptedBackend
    ) -> None:
        updates = world.updates(backend)
        self.staged(world, backend, updates, doubt="The gate objects: too long.", needs_word=True)
        (version,) = world.store.updates.staged_versions()
        assert (version.doubt, version.needs_word) == ("The gate objects: too long.", True)
        assert world.store.updates.to_load() == []
        world.samples(2)
        updates.tick()
        assert len(backend.jobs) == 1  # nothing is learnt on top of it meanwhile
        world.store.updates.accept(version.id)
        assert [one.id for one in world.store.updates.to_load()] == [version.id]
        with pytest.raises(TransitionRefused, match="waits for nobody's word"):
            world.store.updates.accept(version.id)

    def test_a_doubted_version_that_is_overtaken_gives_its_samples_back(
        self, world: World, backend: ScriptedBackend
    ) -> None:
        updates = world.updates(backend)
        self.staged(world, backend, updates)
        world.store.updates.activate(world.store.updates.to_load()[0].id)
        self.staged(world, backend, updates, doubt="too long", needs_word=True)
        world.store.lifecycle.use(world.user.adapter.id, None)
        assert world.store.updates.staged_versions() == []
        assert world.store.signals.waiting(world.user.adapter.id, BASE) == 2

    def test_one_that_is_promoted_in_spite_of_a_doubt_keeps_it(self, world: World, backend: ScriptedBackend) -> None:
        self.staged(world, backend, world.updates(backend), doubt="too long")
        (version,) = world.store.updates.to_load()
        assert (version.doubt, version.needs_word) == ("too long", False)

    def test_a_run_of_bad_versions_rolls_back_by_itself(self, world: World, backend: ScriptedBackend) -> None:
        updates, adapter = world.updates(backend, roll_back_after=2), world.user.adapter
        served = []
        for fault in (None, None, "it babbles"):  # the third update finds that the second version is bad
            self.staged(world, backend, updates, parent_fault=fault)
            served.append(world.store.updates.to_load()[0])
            world.store.updates.activate(served[-1].id)
        assert world.store.updates.version(served[1].id).fault == "it babbles"
        assert world.store.lifecycle.waiting_switches() == []  # it was replaced by the third
        world.samples(2)
        updates.tick()
        backend.end(Outcome(state="refused", reason="The gate objects.", parent_fault="it babbles too"))
        updates.tick()
        (switch,) = world.store.lifecycle.waiting_switches()
        assert (switch.version_id, switch.asked_by) == (served[0].id, "learner")
        assert "2 versions in a row turned out bad, the last one: it babbles too" in switch.why
        assert backend.rings[-1] == "server"
        assert world.store.lifecycle.halted(adapter.id) is not None
        world.store.lifecycle.grant(switch)
        active = world.store.updates.active_version(adapter.id)
        assert active is not None and active.id == served[0].id
        world.samples(2)
        updates.tick()
        assert len(backend.jobs) == 4

    def test_one_bad_version_alone_is_noted(self, world: World, backend: ScriptedBackend) -> None:
        updates = world.updates(backend)
        self.staged(world, backend, updates)
        (version,) = world.store.updates.to_load()
        world.store.updates.activate(version.id)
        world.samples(2)
        updates.tick()
        backend.end(Outcome(state="refused", reason="The gate objects.", parent_fault="it babbles"))
        updates.tick()
        assert world.events("version_faulty") == [{"number": 1, "reason": "it babbles"}]
        assert world.store.updates.version(version.id).fault == "it babbles"
        assert world.store.lifecycle.waiting_switches() == []

    def test_refusals_by_the_gate_halt_the_adapter(self, world: World, backend: ScriptedBackend) -> None:
        updates = world.updates(backend, halt_after=2)
        for _ in range(2):
            world.samples(2)
            updates.tick()
            backend.end(Outcome(state="refused", reason="The gate objects to version 1: it babbles."))
            updates.tick()
        halt = world.store.lifecycle.halted(world.user.adapter.id)
        assert halt is not None and "it babbles" in halt.reason
