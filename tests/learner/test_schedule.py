from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.learner.job import Outcome
from clawd.learner.jobs import ServedModel, folder_of
from tests.learner.parts import BASE, ScriptedBackend, World, words


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
    updates = world.updates(backend, timeout_s=10.0)
    updates.tick()
    backend.now = 9.0
    updates.tick()
    assert not backend.runs[0].cancelled
    backend.now = 10.5
    updates.tick()
    assert backend.runs[0].cancelled and counts(world) == {"waiting": 2}
    assert "10 s (learn.timeout_s)" in world.events("update.failed")[0]["reason"]


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
