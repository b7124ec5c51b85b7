"""The guards of an update: their arithmetic, and a job built to trip each."""

import json
import math
import shutil
from pathlib import Path

import pytest

from clawd.config import LearnSettings
from clawd.errors import UpdateRefused
from clawd.learner.job import MANIFEST_FILE, RESULT_FOLDER, Manifest
from clawd.learner.train.guards import check_drift, check_gradient, check_usable, running_norm
from clawd.learner.train.update import run
from tests.learner.test_update import SETTINGS
from tests.learner.tiny_base import make_sample, mixed_samples, write_job, write_tiny_base

NAN = float("nan")


def settings(**changes: object) -> LearnSettings:
    return LearnSettings.model_validate(changes)


class TestArithmetic:
    def test_usable_share(self):
        check_usable(8, 16, settings(min_usable_share=0.5))
        with pytest.raises(UpdateRefused, match=r"Only 7 of 16 samples .* learn.min_usable_share = 0.5"):
            check_usable(7, 16, settings(min_usable_share=0.5))
        with pytest.raises(UpdateRefused, match="No usable sample"):
            check_usable(0, 16, settings(min_usable_share=0))

    @pytest.mark.parametrize("norm", [11.0, NAN, math.inf])
    def test_gradient_absolute(self, norm):
        check_gradient(10.0, 1, None, settings(max_grad_norm=10))
        with pytest.raises(UpdateRefused, match=r"Step 1: .* learn.max_grad_norm = 10"):
            check_gradient(norm, 1, None, settings(max_grad_norm=10))

    def test_gradient_against_its_history(self):
        limits = settings(max_grad_norm=None, max_grad_growth=5)
        check_gradient(1e9, 1, None, limits)  # nothing to compare with
        check_gradient(10.0, 1, 2.0, limits)
        with pytest.raises(UpdateRefused, match=r"Step 2: .* 10.1, and 2 in .* learn.max_grad_growth = 5 times"):
            check_gradient(10.1, 2, 2.0, limits)

    @pytest.mark.parametrize("name", ["kl_old", "kl_base"])
    @pytest.mark.parametrize("found", [0.31, NAN])
    def test_divergences(self, name, found):
        check_drift({f"drift/{name}": 0.3}, settings(**{f"max_{name}": 0.3}), "After step 1")
        check_drift({f"drift/{name}": found}, settings(**{f"max_{name}": None}), "After step 1")
        with pytest.raises(UpdateRefused, match=f"After step 1, .* learn.max_{name} = 0.3"):
            check_drift({f"drift/{name}": found}, settings(**{f"max_{name}": 0.3}), "After step 1")

    @pytest.mark.parametrize(("ratio", "way"), [(0.49, "more certain"), (2.01, "less certain"), (NAN, "less certain")])
    def test_entropy_either_way(self, ratio, way):
        for fine in (0.5, 1.0, 2.0):
            check_drift({"drift/entropy_ratio": fine}, settings(max_entropy_drift=2), "After the update")
        with pytest.raises(UpdateRefused, match=f"much {way} of itself"):
            check_drift({"drift/entropy_ratio": ratio}, settings(max_entropy_drift=2), "After the update")

    def test_the_usual_norm_by_hand(self):
        """exp(0.7 ln 1 + 0.3 ln e) = e^0.3; one outlier moves it little, and one that says nothing not at all."""
        assert running_norm(None, 2.0) == 2.0
        assert running_norm(1.0, math.e) == pytest.approx(math.exp(0.3))
        assert [running_norm(3.0, norm) for norm in (0.0, NAN, math.inf)] == [3.0] * 3


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return write_tiny_base(tmp_path_factory.mktemp("base") / "base.gguf")


@pytest.fixture
def outcome_of(tmp_path, base):
    def do(samples=None, parent=None, **changes):
        folder = tmp_path / f"job-{len(list(tmp_path.iterdir()))}"
        chosen = LearnSettings.model_validate(SETTINGS.model_dump() | changes)
        write_job(folder, base, tmp_path / "cache", samples or mixed_samples(), chosen, parent)
        outcome = run(folder)
        assert (folder / RESULT_FOLDER).exists() == (outcome.state == "staged")
        return outcome, folder / RESULT_FOLDER

    return do


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_grad_norm": 1e-4}, "Step 1: the gradient's norm"),
        ({"max_kl_old": 1e-6}, "After step 1, the policy is"),  # before the second step is taken
        ({"max_kl_old": 1e-6, "steps": 1}, "After the update, the policy is"),
        ({"max_kl_base": 1e-6}, "away from the base model"),
        ({"max_entropy_drift": 1.00001}, "its entropy at the responses"),
    ],
)
def test_a_job_that_trips_it(outcome_of, changes, named):
    outcome, _ = outcome_of(**changes)
    assert outcome.state == "refused"
    assert named in (outcome.reason or "")
    assert outcome.metrics["samples/used"] == 5  # what was measured until then is told
    assert outcome_of()[0].state == "staged"  # the same job without the limit


def test_too_few_are_left(outcome_of):
    spoilt = [sample.model_copy(update={"prompt_ids": []}) for sample in mixed_samples()[1:]]
    outcome, _ = outcome_of([mixed_samples()[0], *spoilt], min_usable_share=0.5)
    assert outcome.state == "refused"
    assert "Only 1 of 5 samples can be used" in (outcome.reason or "")
    assert len(outcome.quarantined) == 4


def test_a_gradient_that_explodes_beside_those_before(outcome_of, tmp_path):
    """The history is in the parent's folder, so that the update is a function of its job."""
    outcome, result = outcome_of()
    manifest = Manifest.model_validate_json((result / MANIFEST_FILE).read_text())
    assert manifest.grad_norm_mean == pytest.approx(outcome.metrics["train/first_grad_norm"])
    calm = tmp_path / "calm" / "v1"
    shutil.copytree(result, calm)
    (calm / MANIFEST_FILE).write_text(json.dumps(json.loads(manifest.model_dump_json()) | {"grad_norm_mean": 1e-6}))
    refused, _ = outcome_of(parent=calm)
    assert refused.state == "refused"
    assert "1e-06 in this adapter's earlier updates" in (refused.reason or "")
    assert outcome_of(parent=result)[0].state == "staged"


def test_an_exploding_batch_is_refused_under_the_defaults(outcome_of):
    limits = LearnSettings()
    changes = {name: getattr(limits, name) for name in ("max_kl_old", "max_kl_base", "max_entropy_drift")}
    outcome, _ = outcome_of([make_sample(n, (1, -1)[n % 2]) for n in range(6)], learning_rate=0.3, steps=4, **changes)
    assert outcome.state == "refused"
    assert "learn.max_kl_old = 0.5" in (outcome.reason or "")
