"""The update child on a tiny model: from job folder to result folder, and every way in which it must not succeed."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from clawd.config import LearnSettings, LoraSettings, LossSettings
from clawd.learner.job import (
    ADAPTER_GGUF,
    MANIFEST_FILE,
    OPTIMIZER_FILE,
    OUTCOME_FILE,
    PEFT_CONFIG,
    PEFT_WEIGHTS,
    RESULT_FOLDER,
    Manifest,
    Outcome,
    Sample,
)
from clawd.learner.train.update import run
from clawd.model.lora import check_adapter_file, read_lora_base
from tests.learner.tiny_base import FINGERPRINT, make_sample, mixed_samples, write_job, write_tiny_base

SETTINGS = LearnSettings(
    dtype="float32",
    learning_rate=1e-2,
    steps=2,
    micro_batch_tokens=64,
    threads=1,
    nice=0,  # most of these run in the test's own process
    max_rollout_mismatch=None,  # the samples' log-probabilities are invented
    max_kl_old=None,  # steps are large, so that they show; `test_guards.py` trips the guards
    max_kl_base=None,
    max_entropy_drift=None,
    min_usable_share=0.0,
    lora=LoraSettings(rank=4, alpha=8),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return write_tiny_base(tmp_path_factory.mktemp("base") / "base.gguf")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def job(tmp_path, base, cache):
    """Makes a job folder; the n-th is `job-n`."""

    def make(samples: list[Sample], settings: LearnSettings = SETTINGS, parent: Path | None = None) -> Path:
        return write_job(tmp_path / f"job-{len(list(tmp_path.iterdir()))}", base, cache, samples, settings, parent)

    return make


@pytest.fixture(scope="module")
def staged(tmp_path_factory, base, cache) -> Path:
    """A job folder whose update has succeeded; not to be changed."""
    folder = write_job(tmp_path_factory.mktemp("jobs") / "staged", base, cache, mixed_samples(), SETTINGS)
    outcome = run(folder)
    assert outcome.state == "staged", outcome.reason
    return folder


def outcome_of(folder: Path) -> Outcome:
    return Outcome.model_validate_json((folder / OUTCOME_FILE).read_text())


class TestStaged:
    def test_the_result_is_whole(self, staged, base):
        result = staged / RESULT_FOLDER
        names = {ADAPTER_GGUF, PEFT_WEIGHTS, PEFT_CONFIG, OPTIMIZER_FILE, MANIFEST_FILE}
        assert {path.name for path in result.iterdir()} == names
        check_adapter_file(result / ADAPTER_GGUF, read_lora_base(base, FINGERPRINT))
        manifest = Manifest.model_validate_json((result / MANIFEST_FILE).read_text())
        assert set(manifest.sha256) == names - {MANIFEST_FILE}
        for name, digest in manifest.sha256.items():
            assert hashlib.sha256((result / name).read_bytes()).hexdigest() == digest
        assert manifest.sample_ids == [sample.sample_id for sample in mixed_samples()]
        assert manifest.settings == SETTINGS.model_dump(mode="json")
        assert set(manifest.seconds) == {"load", "score", "train", "effect", "write", "validate", "gate"}
        assert manifest.versions["torch"] == torch.__version__ or manifest.versions["torch"] in torch.__version__

    def test_nothing_else_is_left_in_the_job_folder(self, staged):
        assert {path.name for path in staged.iterdir()} == {"job.json", "samples.jsonl", "result", "outcome.json"}

    def test_metrics(self, staged):
        metrics = outcome_of(staged).metrics
        assert metrics["samples/used"] == 5
        assert metrics["samples/hinted"] == 3
        assert metrics["samples/scored"] == 4
        assert metrics["train/first_ratio"] == 1.0
        assert metrics["train/tokens_per_s"] > 0
        assert metrics["validate/mismatch_kl"] < 1e-4  # float16 factors
        assert metrics["validate/effect_kl"] > 1e-4
        assert metrics["effect/praised_logprob"] > 0
        assert metrics["effect/rejected_logprob"] < 0
        assert all(isinstance(value, float) for value in metrics.values())

    def test_mismatch_by_hand(self, job):
        """The engine's log-probabilities are the trainer's plus a known error."""
        first = job([make_sample(1)], SETTINGS.model_copy(update={"steps": 1}))
        run(first)
        assert outcome_of(first).metrics["mismatch/abs_mean"] > 0.1  # invented ones
        from clawd.learner.train.base import load_base
        from clawd.learner.train.batch import response_logprobs
        from clawd.learner.train.policy import Policy

        described = json.loads((first / "job.json").read_text())
        dense = load_base(Path(described["base"]), FINGERPRINT, Path(described["cache"]), torch.float32)
        (old,) = response_logprobs(Policy(dense, SETTINGS.lora, 0, "base"), [make_sample(1)], [[0]])
        shifted = make_sample(1).model_copy(update={"rollout_logprobs": (old - 0.05).tolist()})
        second = job([shifted], SETTINGS.model_copy(update={"steps": 1}))
        run(second)
        metrics = outcome_of(second).metrics
        assert metrics["mismatch/abs_mean"] == pytest.approx(0.05, abs=1e-5)
        assert metrics["mismatch/abs_p99"] == pytest.approx(0.05, abs=1e-5)
        assert metrics["mismatch/importance_weight"] == pytest.approx(1.0512711, abs=1e-5)
        assert metrics["train/first_loss"] == pytest.approx(-1.0512711, abs=1e-5)

    def test_the_same_job_gives_the_same_bytes(self, staged, job):
        again = job(mixed_samples())
        run(again)
        for name in (ADAPTER_GGUF, PEFT_WEIGHTS, PEFT_CONFIG, OPTIMIZER_FILE):
            assert (again / RESULT_FOLDER / name).read_bytes() == (staged / RESULT_FOLDER / name).read_bytes(), name

    def test_another_seed_gives_others(self, staged, job):
        other = job(mixed_samples(), SETTINGS.model_copy(update={"seed": 1}))
        run(other)
        assert (other / RESULT_FOLDER / PEFT_WEIGHTS).read_bytes() != (
            staged / RESULT_FOLDER / PEFT_WEIGHTS
        ).read_bytes()

    def test_every_option_of_the_loss_runs(self, job):
        loss = LossSettings(hint_choice="token", support="overlap", kl_base_weight=0.05, delta_clip=None, support_k=3)
        folder = job(mixed_samples(), SETTINGS.model_copy(update={"loss": loss}))
        assert run(folder).state == "staged"
        assert outcome_of(folder).metrics["kl_base/k3"] > 0
        assert outcome_of(folder).metrics["opd/support_size"] < 3


KEEPING = {
    "grpo": {"loss": {"method": "grpo"}},
    "opd": {"loss": {"method": "opd"}},
    "random": {"loss": {"hint_choice": "random"}, "seed": 1},  # which a version that has a parent uses for nothing else
    "base teacher": {"loss": {"teacher": "base"}},
    "negative weight": {"loss": {"negative_weight": 0.1}},
    "baseline": {"loss": {"baseline_decay": 0.5}},
    "dual clip": {"loss": {"dual_clip": 1.01}, "steps": 3},
    "target": {"kl_target": 0.002},
    "neutral": {"loss": {"neutral_weight": 20.0}},
    "schedule": {"rate_schedule": "inverse"},
}


def chosen(changes: dict) -> LearnSettings:
    return LearnSettings.model_validate(SETTINGS.model_dump() | changes)


def with_neutral(folder: Path, prompts: list[list[int]]) -> Path:
    described = json.loads((folder / "job.json").read_text()) | {"neutral": prompts}
    (folder / "job.json").write_text(json.dumps(described))
    return folder


@pytest.fixture(scope="module")
def rewarded(staged, tmp_path_factory) -> Path:
    """A first version whose adapter has a mean reward."""
    parent = tmp_path_factory.mktemp("parents") / "v1"
    shutil.copytree(staged / RESULT_FOLDER, parent)
    described = json.loads((parent / MANIFEST_FILE).read_text()) | {"reward_mean": -0.25}
    (parent / MANIFEST_FILE).write_text(json.dumps(described))
    return parent


@pytest.fixture(scope="module")
def by_default(base, cache, rewarded, tmp_path_factory) -> list[bytes]:
    """The second version under the defaults."""
    folder = tmp_path_factory.mktemp("second") / "job"
    return made_by(write_job(folder, base, cache, mixed_samples(), SETTINGS, rewarded))


def made_by(folder: Path) -> list[bytes]:
    """What is served and what is trained on, after an update with neutral prompts."""
    outcome = run(with_neutral(folder, [[5, 6, 7], [8, 9]]))
    assert outcome.state == "staged", outcome.reason
    return [(folder / RESULT_FOLDER / name).read_bytes() for name in (PEFT_WEIGHTS, ADAPTER_GGUF)]


class TestKeepingTheMind:
    """On the second version of an adapter, where each setting has something to act on."""

    @pytest.mark.parametrize("changes", KEEPING.values(), ids=KEEPING)
    def test_every_setting_makes_a_difference_and_the_same_bytes_twice(self, job, rewarded, by_default, changes):
        made = [made_by(job(mixed_samples(), chosen(changes), rewarded)) for _ in range(2)]
        assert made[0] == made[1]
        assert made[0] != by_default

    def test_another_update_draws_other_hints(self, job):
        weights = set()
        for update in "abcdef":
            folder = job([make_sample(4, reward=0, hints=3)], chosen({"loss": {"hint_choice": "random"}}))
            described = json.loads((folder / "job.json").read_text()) | {"update_id": update}
            (folder / "job.json").write_text(json.dumps(described))
            assert run(folder).state == "staged"
            weights.add((folder / RESULT_FOLDER / PEFT_WEIGHTS).read_bytes())
        assert 1 < len(weights) <= 3

    def test_the_running_mean_reward_is_handed_from_version_to_version(self, job):
        """mixed_samples: rewards 1, -1, 0, -1: mean -0.25. Then those of 1 and -1: ½ · -0.25 + ½ · 0 = -0.125."""
        settings = chosen({"loss": {"baseline_decay": 0.5}})
        first = job(mixed_samples(), settings)
        assert run(first).state == "staged"
        assert self.mean_of(first) == -0.25
        second = job([make_sample(1, 1), make_sample(2, -1)], settings, first / RESULT_FOLDER)
        assert run(second).state == "staged"
        assert self.mean_of(second) == -0.125
        # With the setting off it is handed on untouched, and not subtracted: A = r, so the first loss is their mean.
        off = job([make_sample(1, 1), make_sample(2, -1)], SETTINGS, second / RESULT_FOLDER)
        assert run(off).state == "staged"
        assert self.mean_of(off) == -0.125

    def test_what_is_subtracted_by_hand(self, job):
        """One sample of reward 1 over a mean of -0.25: A = 1.25, and the importance weight of the engine's exact
        log-probabilities is 1, so the first loss is -1.25."""
        settings = chosen({"loss": {"baseline_decay": 0.5}, "steps": 1})
        first = job(mixed_samples(), settings)
        assert run(first).state == "staged"
        exact = self.rolled_out(first, make_sample(1))
        assert run(job([exact], settings, first / RESULT_FOLDER)).metrics["train/first_loss"] == pytest.approx(
            -1.25, abs=1e-5
        )

    def mean_of(self, folder: Path) -> float | None:
        return Manifest.model_validate_json((folder / RESULT_FOLDER / MANIFEST_FILE).read_text()).reward_mean

    def rolled_out(self, folder: Path, sample: Sample) -> Sample:
        """The sample as the version in `folder` would have sampled it."""
        from clawd.learner.train.base import load_base
        from clawd.learner.train.batch import response_logprobs
        from clawd.learner.train.policy import Policy

        described = json.loads((folder / "job.json").read_text())
        dense = load_base(Path(described["base"]), FINGERPRINT, Path(described["cache"]), torch.float32)
        policy = Policy(dense, SETTINGS.lora, 0, "base")
        policy.load(folder / RESULT_FOLDER)
        (old,) = response_logprobs(policy, [sample], [[0]])
        return sample.model_copy(update={"rollout_logprobs": old.tolist()})

    def test_the_anchored_teacher_is_the_base(self, staged, job):
        """With the base as teacher the pull is towards another distribution than that of the parent's own."""
        parent = staged / RESULT_FOLDER
        pulls = [
            run(job([make_sample(3, None, 1)], chosen({"loss": {"teacher": teacher}}), parent)).metrics["opd/delta_abs"]
            for teacher in ("old", "base")
        ]
        assert abs(pulls[0] - pulls[1]) > 1e-3

    def test_the_regulariser_holds_the_policy_at_the_base(self, staged, job):
        parent, moved = staged / RESULT_FOLDER, []
        for weight in (1e-6, 50.0):
            settings = chosen({"loss": {"neutral_weight": weight}, "steps": 4})
            outcome = run(with_neutral(job(mixed_samples(), settings, parent), [[5, 6, 7], [8, 9]]))
            moved.append(outcome.metrics["neutral/kl_base"])
        assert moved[1] < moved[0]

    def test_the_target_bounds_what_an_update_does(self, job):
        free = run(job(mixed_samples(), chosen({"steps": 4}))).metrics
        held = run(job(mixed_samples(), chosen({"steps": 4, "kl_target": free["effect/kl_old"] / 10}))).metrics
        assert held["trust/kl"] <= free["effect/kl_old"] / 10
        assert held["effect/kl_old"] < free["effect/kl_old"] / 2
        assert held["train/steps"] < free["train/steps"] == 4

    def test_the_rate_falls_with_the_number_of_the_version(self, staged, job):
        outcome = run(job(mixed_samples(), chosen({"rate_schedule": "inverse"}), staged / RESULT_FOLDER))
        assert outcome.metrics["train/learning_rate"] == pytest.approx(0.5e-2)  # version 2


class TestMethods:
    def test_grpo_reads_no_hints_and_leaves_out_what_has_no_reward(self, job):
        outcome = run(job(mixed_samples(), chosen({"loss": {"method": "grpo"}})))
        assert set(outcome.quarantined) == {"sample-3", "sample-4"}
        assert all("learn.loss.method = grpo" in reason for reason in outcome.quarantined.values())
        assert (outcome.metrics["samples/used"], outcome.metrics["samples/hinted"]) == (3, 0)

    def test_opd_leaves_out_what_has_no_hint(self, job):
        outcome = run(job(mixed_samples(), chosen({"loss": {"method": "opd"}})))
        assert set(outcome.quarantined) == {"sample-1", "sample-5"}
        assert outcome.metrics["samples/used"] == 3

    def test_steps_of_tasks_are_trained_relative_to_their_group(self, job):
        def step(number: int, group: str, outcome: float) -> Sample:
            task = {"group": group, "index": 0, "outcome": outcome, "votes": [1]}
            return Sample.model_validate(make_sample(number, None).model_dump() | {"task": task})

        samples = [step(1, "a", 1.0), step(2, "a", 0.0), step(3, "b", 1.0), step(4, "b", 1.0)]
        outcome = run(job(samples))
        assert outcome.state == "staged", outcome.reason
        assert outcome.metrics["samples/flat_groups"] == 1
        assert outcome.metrics["samples/scored"] == 4
        # A is 1, -1, 0, 0 but for 1e-6; what remains of the loss is the difference of two importance weights.
        assert abs(outcome.metrics["train/first_loss"]) < 0.5


class TestParent:
    def test_two_updates_are_one_longer_one(self, staged, job):
        """Weights and moments are carried over: a second update on the same samples is not a fresh start."""
        parent = staged / RESULT_FOLDER
        child = job(mixed_samples(), parent=parent)
        assert run(child).state == "staged"
        before, after = load_file(parent / OPTIMIZER_FILE), load_file(child / RESULT_FOLDER / OPTIMIZER_FILE)
        assert before["step"].item() == 2
        assert after["step"].item() == 4
        manifest = Manifest.model_validate_json((child / RESULT_FOLDER / MANIFEST_FILE).read_text())
        assert manifest.parent == RESULT_FOLDER
        assert manifest.number == 2
        # What the moments say and what the parent's weights are decides the first step; a fresh B would be zero.
        weights = load_file(child / RESULT_FOLDER / PEFT_WEIGHTS)
        old = load_file(parent / PEFT_WEIGHTS)
        assert all(0 < float((weights[n] - old[n]).abs().max()) < 0.05 for n in weights if "lora_B" in n)
        assert run(job(mixed_samples(), parent=parent)).metrics["train/first_ratio"] == 1.0

    def test_the_moments_matter(self, staged, job, tmp_path):
        forgetful = tmp_path / "parents" / "v1"
        shutil.copytree(staged / RESULT_FOLDER, forgetful)
        state = {name: torch.zeros_like(value) for name, value in load_file(forgetful / OPTIMIZER_FILE).items()}
        save_file(state, forgetful / OPTIMIZER_FILE)
        weights = []
        for parent in (staged / RESULT_FOLDER, forgetful):
            child = job(mixed_samples(), parent=parent)
            assert run(child).state == "staged"
            weights.append(load_file(child / RESULT_FOLDER / PEFT_WEIGHTS))
        assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])

    @pytest.mark.parametrize("name", [PEFT_WEIGHTS, PEFT_CONFIG, OPTIMIZER_FILE, MANIFEST_FILE])
    def test_a_damaged_parent_fails_with_its_name(self, staged, job, tmp_path, name):
        parent = tmp_path / "parents" / "v1"
        shutil.copytree(staged / RESULT_FOLDER, parent)
        (parent / name).write_bytes((parent / name).read_bytes()[:20])
        folder = job(mixed_samples(), parent=parent)
        outcome = run(folder)
        assert outcome.state == "failed"
        assert "can't be read" in (outcome.reason or "") and str(parent) in (outcome.reason or "")
        assert not (folder / RESULT_FOLDER).exists()

    def test_another_rank_is_a_failure_that_names_the_setting(self, staged, job):
        settings = SETTINGS.model_copy(update={"lora": LoraSettings(rank=8, alpha=8)})
        outcome = run(job(mixed_samples(), settings, parent=staged / RESULT_FOLDER))
        assert outcome.state == "failed"
        assert "r = 4 and the settings say 8" in (outcome.reason or "")


class TestLeftOut:
    def test_a_turn_of_four_times_the_budget_among_normal_ones(self, job):
        """Case S8."""
        samples = [*mixed_samples(), make_sample(9, prompt=120, response=8)]
        outcome = run(job(samples, SETTINGS.model_copy(update={"max_sample_tokens": 32})))
        assert outcome.state == "staged"
        assert outcome.quarantined == {"sample-9": "128 tokens, more than learn.max_sample_tokens = 32"}
        assert outcome.metrics["samples/used"] == 5

    def test_every_other_reason(self, job):
        good = make_sample(1)
        wild = [
            good.model_copy(update={"sample_id": "vocabulary", "response_ids": [1] * 8 + [128]}),
            good.model_copy(update={"sample_id": "empty", "prompt_ids": []}),
            good.model_copy(update={"sample_id": "infinite", "rollout_logprobs": [-1.0] * 8 + [float("-inf")]}),
            good.model_copy(update={"sample_id": "nothing", "reward": 0}),
            good.model_copy(update={"sample_id": "unscored", "reward": None}),
        ]
        folder = job([good])
        lines = [json.dumps(s.model_dump(), default=str) for s in wild]
        with (folder / "samples.jsonl").open("a") as file:
            file.write("\n".join(lines).replace("-Infinity", '"-inf"') + "\n")
        outcome = run(folder)
        assert outcome.state == "staged", outcome.reason
        assert set(outcome.quarantined) == {"vocabulary", "empty", "infinite", "nothing", "unscored"}
        assert "outside the vocabulary of 128" in outcome.quarantined["vocabulary"]
        assert "nothing to learn" in outcome.quarantined["nothing"]

    def test_none_left(self, job):
        folder = job([make_sample(1, reward=0)])
        outcome = run(folder)
        assert (outcome.state, outcome.reason) == ("refused", "No usable sample is left.")
        assert list(outcome.quarantined) == ["sample-1"]
        assert not (folder / RESULT_FOLDER).exists()


class TestRefused:
    def test_a_number_that_is_not_finite(self, staged, job, tmp_path):
        parent = tmp_path / "parents" / "v1"
        shutil.copytree(staged / RESULT_FOLDER, parent)
        weights = load_file(parent / PEFT_WEIGHTS)
        next(iter(weights.values()))[0, 0] = float("nan")
        save_file(weights, parent / PEFT_WEIGHTS)
        folder = job(mixed_samples(), parent=parent)
        outcome = run(folder)
        assert outcome.state == "refused"
        assert "Step 1 of 2: loss nan" in (outcome.reason or "")
        assert {path.name for path in folder.iterdir()} == {"job.json", "samples.jsonl", "outcome.json"}

    def test_exploding(self, job):
        outcome = run(job(mixed_samples(), SETTINGS.model_copy(update={"learning_rate": 1e25, "steps": 3})))
        assert outcome.state == "refused"
        assert "aren't finite" in (outcome.reason or "")

    def test_without_effect(self, job):
        """Case A6: the steps are too small to change what is served."""
        folder = job(mixed_samples(), SETTINGS.model_copy(update={"learning_rate": 1e-12}))
        outcome = run(folder)
        assert outcome.state == "refused"
        assert "without effect" in (outcome.reason or "")
        assert not (folder / RESULT_FOLDER).exists()

    def test_too_far_from_the_trainer(self, job):
        outcome = run(job(mixed_samples(), SETTINGS.model_copy(update={"max_mismatch_kl": 1e-12})))
        assert outcome.state == "refused"
        assert "more than learn.max_mismatch_kl = 1e-12" in (outcome.reason or "")

    @pytest.mark.parametrize("reward", [1, -1])
    def test_equal_rewards_without_a_hint(self, job, reward):
        """Case J7."""
        folder = job([make_sample(number, reward) for number in range(16)])
        outcome = run(folder)
        assert outcome.state == "refused"
        assert outcome.reason == f"No signal: all 16 rewards are {reward:+d} and there is no hint."
        assert not (folder / RESULT_FOLDER).exists()

    def test_equal_rewards_whose_hints_the_method_does_not_read(self, job):
        samples = [make_sample(number, -1, hints=1) for number in range(4)]
        outcome = run(job(samples, chosen({"loss": {"method": "grpo"}})))
        assert (outcome.state, outcome.reason) == ("refused", "No signal: all 4 rewards are -1 and there is no hint.")
        assert run(job(samples)).state == "staged"

    def test_every_response_cut(self, job):
        """Case J7."""
        samples = [
            make_sample(number, (1, -1)[number % 2]).model_copy(update={"truncated": True}) for number in range(16)
        ]
        outcome = run(job(samples))
        assert outcome.state == "refused"
        assert outcome.reason == "No signal: all 16 responses were cut by their token limit and there is no hint."

    def test_responses_of_another_model_than_the_trainers(self, job):
        outcome = run(job(mixed_samples(), chosen({"max_rollout_mismatch": 0.01})))
        assert outcome.state == "refused"
        assert "more than learn.max_rollout_mismatch = 0.01" in (outcome.reason or "")
        assert outcome.metrics["mismatch/abs_mean"] > 0.01  # told, though it ended there


class TestFailed:
    @pytest.mark.parametrize("name", ["job.json", "samples.jsonl"])
    def test_a_missing_file(self, job, name):
        folder = job(mixed_samples())
        (folder / name).unlink()
        outcome = run(folder)
        assert outcome.state == "failed"
        assert name in (outcome.reason or "")
        assert outcome_of(folder) == outcome

    def test_unequal_lengths_are_refused_never_padded(self, job):
        """Case T1."""
        folder = job([make_sample(1)])
        line = json.loads((folder / "samples.jsonl").read_text())
        line["rollout_logprobs"].pop()
        (folder / "samples.jsonl").write_text(json.dumps(line))
        outcome = run(folder)
        assert outcome.state == "failed"
        assert "9 response ids but 8 log-probabilities" in (outcome.reason or "")

    def test_a_missing_base(self, job, tmp_path):
        folder = job(mixed_samples())
        described = json.loads((folder / "job.json").read_text()) | {"base": str(tmp_path / "nowhere.gguf")}
        (folder / "job.json").write_text(json.dumps(described))
        outcome = run(folder)
        assert outcome.state == "failed"
        assert "nowhere.gguf" in (outcome.reason or "")

    def test_leftovers_of_an_earlier_try_are_cleared(self, job):
        folder = job(mixed_samples())
        for leftover in (".result", "result"):
            (folder / leftover).mkdir()
            (folder / leftover / "half.gguf").touch()
        (folder / OUTCOME_FILE).write_text("{}")
        (folder / "samples.jsonl").unlink()
        assert run(folder).state == "failed"
        assert {path.name for path in folder.iterdir()} == {"job.json", "outcome.json"}


class TestProcess:
    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "clawd.learner.train.update", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_progress_is_json_lines_and_the_status_tells_the_truth(self, job):
        folder = job(mixed_samples(), SETTINGS.model_copy(update={"nice": 7}))
        process = self.start(str(folder))
        lines = [json.loads(line) for line in process.stdout]
        assert process.wait() == 0, process.stderr.read()
        process.stderr.close()
        process.stdout.close()
        assert [line["name"] for line in lines if line["event"] == "phase"] == [
            *("load", "score", "train", "effect", "write", "validate", "gate")
        ]
        assert [line["step"] for line in lines if line["event"] == "step"] == [1, 2]
        assert lines[-1] == {"event": "outcome", "state": "staged", "reason": None}

    def test_no_job_folder(self, tmp_path):
        process = self.start(str(tmp_path / "nowhere"))
        _, errors = process.communicate()
        assert process.returncode == 2
        assert "usage" in errors

    def test_sigterm_ends_it_at_once_and_leaves_no_result(self, job):
        folder = job(mixed_samples(), SETTINGS.model_copy(update={"steps": 100_000}))
        process = self.start(str(folder))
        for line in process.stdout:
            if json.loads(line)["event"] == "step":
                break
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
        assert time.monotonic() - began < 5
        process.stdout.close()
        process.stderr.close()
        assert {path.name for path in folder.iterdir()} == {"job.json", "samples.jsonl"}

    def test_the_entry_is_light_until_the_priority_is_set(self):
        script = "import sys, clawd.learner.train.update; sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
