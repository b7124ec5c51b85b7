"""The gate: what it objects to, and what becomes of a real update that it looks at."""

import json
import shutil
from pathlib import Path

import pytest

from clawd.config import GateSettings, LearnSettings
from clawd.learner.job import JOB_FILE, RESULT_FOLDER, Outcome, Probes
from clawd.learner.neutral import PROMPTS as TRAINED_PROMPTS
from clawd.learner.probes import PROMPTS
from clawd.learner.train.gate import objections, with_held_back
from clawd.learner.train.held_back import split
from clawd.learner.train.update import read_job, run
from tests.learner.test_update import SETTINGS
from tests.learner.tiny_base import make_sample, write_job
from tests.tiny_gguf import TINY, write_random_lora

NAN = float("nan")
FINE = {
    "neutral_kl": 0.02,
    "degenerate_candidate": 0.1,
    "degenerate_base": 0.1,
    "length_candidate": 30.0,
    "length_base": 40.0,
    "degenerate_active": 0.0,
    "degenerate_base_own": 0.0,
    "length_active": 20.0,
    "length_base_own": 40.0,
    "runaway_candidate": 0.4,
    "runaway_active": 0.4,
    "held_back_gain": 0.1,
}


LENIENT = dict.fromkeys(("max_neutral_kl", "max_degenerate", "max_length_ratio", "max_runaway", "max_wrong_way"))


class TestObjections:
    def test_none(self):
        assert objections(FINE, GateSettings()) == []
        assert objections(FINE, GateSettings(), "active") == []
        assert objections({}, GateSettings()) == []  # nothing could be asked, nothing is held against it

    @pytest.mark.parametrize(
        ("figure", "bad", "named"),
        [
            ("neutral_kl", 0.11, "learn.gate.max_neutral_kl = 0.1"),
            ("degenerate_candidate", 0.21, "learn.gate.max_degenerate allows 10% more"),
            ("length_candidate", 121.0, "learn.gate.max_length_ratio = 3"),
            ("length_candidate", 13.0, "learn.gate.max_length_ratio = 3"),
            ("runaway_candidate", 0.51, "learn.gate.max_runaway = 50%"),
            ("held_back_gain", -0.06, "by 0.060 nats per token"),
        ],
    )
    def test_each(self, figure, bad, named):
        for value in (bad, NAN):
            (reason,) = objections(FINE | {figure: value}, GateSettings())
            assert named in reason or value != bad
            assert objections(FINE | {figure: value}, GateSettings(), "active") == []
        unlimited = dict.fromkeys(LENIENT)
        assert objections(FINE | {figure: bad}, GateSettings(**unlimited)) == []

    @pytest.mark.parametrize(
        ("figure", "bad"), [("degenerate_active", 0.11), ("length_active", 121.0), ("runaway_active", 0.6)]
    )
    def test_of_the_version_that_serves(self, figure, bad):
        assert len(objections(FINE | {figure: bad}, GateSettings(), "active")) == 1
        assert objections(FINE | {figure: bad}, GateSettings()) == []


SAMPLES = tuple(make_sample(n, (1, -1)[n % 2]) for n in range(16))


class TestHeldBack:
    def test_by_lot_and_at_most_one_in_eight(self):
        trained, held = split(list(SAMPLES), 2, "u1")
        assert (len(trained), len(held)) == (14, 2)
        assert split(list(SAMPLES), 2, "u1") == (trained, held)
        assert len({tuple(one.sample_id for one in split(list(SAMPLES), 2, f"u{n}")[1]) for n in range(8)}) > 4
        assert split(list(SAMPLES), 0, "u1") == (list(SAMPLES), [])
        assert split(list(SAMPLES)[:7], 2, "u1") == (list(SAMPLES)[:7], [])
        assert len(split(list(SAMPLES)[:8], 2, "u1")[1]) == 1

    def test_not_where_the_rest_would_have_no_signal(self):
        one_says_no = [make_sample(n, 1) for n in range(15)] + [make_sample(15, -1)]
        for lot in map(str, range(40)):
            trained, _ = split(one_says_no, 2, lot)
            assert {sample.reward for sample in trained} == {1, -1}


def test_what_is_asked_is_never_what_is_trained_on():
    assert not set(PROMPTS) & set(TRAINED_PROMPTS)
    assert len(set(PROMPTS)) == len(PROMPTS) == GateSettings.model_fields["answers"].metadata[1].le


PROBES = Probes(neutral=[[1, 40, 41, 42], [1, 50, 51]], own=[[1, 60, 61, 62, 63]])


class TestOwnPrompts:
    """What the versions answer of their users' own kind of message."""

    def own(self, tmp_path, lengths: list[int], probes: Probes = PROBES, most: int = 4) -> list[list[int]]:
        folder = tmp_path / f"job-{len(list(tmp_path.iterdir()))}"
        write_job(folder, tmp_path / "base.gguf", tmp_path, [make_sample(0)], SETTINGS)
        job = read_job(folder)[0]
        gate = job.settings.gate.model_copy(update={"own_answers": most})
        job = job.model_copy(update={"probes": probes, "settings": job.settings.model_copy(update={"gate": gate})})
        samples = [make_sample(n, prompt=length) for n, length in enumerate(lengths)]
        return with_held_back(job, samples).probes.own[len(probes.own) :]

    def test_held_back_prompts_fill_up(self, tmp_path):
        assert [len(ids) for ids in self.own(tmp_path, [12, 20])] == [12, 20]

    def test_up_to_what_is_asked_for(self, tmp_path):
        assert len(self.own(tmp_path, [12] * 6)) == 4 - len(PROBES.own)
        assert self.own(tmp_path, [12] * 6, most=len(PROBES.own)) == []
        assert self.own(tmp_path, [12] * 6, most=0) == []

    def test_a_long_one_would_take_too_long(self, tmp_path):
        assert [len(ids) for ids in self.own(tmp_path, [513, 512])] == [512]


@pytest.fixture
def gated(tmp_path, tiny_model):
    """An update of the tiny model through the gate; lenient but for what is named."""

    def do(
        parent: Path | None = None, samples: int = 4, probes: Probes = PROBES, **gate: object
    ) -> tuple[Outcome, Path]:
        folder = tmp_path / f"job-{len(list(tmp_path.iterdir()))}"
        changes = {"gate": {"answer_tokens": 16, **LENIENT, **gate}}
        settings = LearnSettings.model_validate(SETTINGS.model_dump() | changes)
        batch = [make_sample(n, (1, -1)[n % 2]) for n in range(samples)]
        write_job(folder, tiny_model, tmp_path / "cache", batch, settings, parent)
        described = json.loads((folder / JOB_FILE).read_text()) | {"probes": probes.model_dump()}
        (folder / JOB_FILE).write_text(json.dumps(described))
        return run(folder), folder / RESULT_FOLDER

    return do


class TestUpdate:
    def test_figures(self, gated, tmp_path):
        outcome, result = gated()
        assert outcome.state == "staged", outcome.reason
        figures = {name: value for name, value in outcome.metrics.items() if name.startswith("gate/")}
        assert set(figures) == {
            *("gate/neutral_kl", "gate/degenerate_candidate", "gate/degenerate_base"),
        }
        assert figures["gate/neutral_kl"] > 0
        # No lengths: this model comes to no end.
        (kept,) = (tmp_path / "cache").glob("probes-*.json")
        assert len(json.loads(kept.read_text())) == 2  # the base's answers to the bundled prompts, and no one's own
        again, second = gated(parent=result)
        assert again.state == "staged", again.reason
        assert {"gate/degenerate_active", "gate/degenerate_base_own"} <= set(again.metrics)
        assert second.exists()

    @pytest.mark.parametrize(
        ("choice", "state", "needs_word"),
        [("refuse", "refused", False), ("ask", "staged", True), ("promote", "staged", False)],
    )
    def test_an_objection(self, gated, choice, state, needs_word):
        outcome, result = gated(max_neutral_kl=1e-9, on_failure=choice)
        assert (outcome.state, outcome.needs_word, result.exists()) == (state, needs_word, state == "staged")
        said = outcome.reason if state == "refused" else outcome.doubt
        assert "The gate objects to version 1: it answers questions differently" in (said or "")
        assert outcome.metrics["gate/neutral_kl"] > 1e-9

    def test_held_back_samples_are_read_and_not_trained(self, gated):
        outcome, result = gated(samples=16, held_back=2)
        assert outcome.state == "staged", outcome.reason
        assert len(outcome.held_back) == 2
        assert "gate/held_back_gain" in outcome.metrics
        manifest = json.loads((result / "manifest.json").read_text())
        assert len(manifest["sample_ids"]) == 14
        assert not set(manifest["sample_ids"]) & set(outcome.held_back)

    def test_a_first_update_answers_what_it_has_not_trained_on_of_its_users(self, gated):
        """All that they have asked so far is in the batch; what is held back of it isn't trained."""
        nothing, _ = gated(samples=16, held_back=0, probes=Probes())
        assert "gate/degenerate_candidate" not in nothing.metrics
        something, _ = gated(samples=16, held_back=2, probes=Probes())
        assert {"gate/degenerate_candidate", "gate/degenerate_base"} <= set(something.metrics)

    def test_a_damaged_store_of_answers_is_made_anew(self, gated, tmp_path):
        first, _ = gated()
        (kept,) = (tmp_path / "cache").glob("probes-*.json")
        kept.write_text(kept.read_text()[:20])
        again, _ = gated()
        assert again.metrics["gate/neutral_kl"] == first.metrics["gate/neutral_kl"]

    def test_a_version_that_serves_and_babbles_is_told(self, gated, tmp_path):
        """Its adapter, as served, has gone bad: the model's own answers to the own messages are no guide to it."""
        _, result = gated()
        spoilt = tmp_path / "spoilt" / "v1"
        shutil.copytree(result, spoilt)
        write_random_lora(spoilt / "adapter.gguf", TINY, seed=3, strength=40.0)
        outcome, _ = gated(parent=spoilt, max_degenerate=0.1)
        assert outcome.metrics["gate/degenerate_base_own"] == 0.0
        assert "of its answers are empty" in (outcome.parent_fault or "")
