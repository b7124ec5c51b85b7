"""The size of an update by its effect: exact divergences, and a step that is shrunk to a target."""

import math

import pytest
import torch

from clawd.config import LearnSettings, LoraSettings
from clawd.errors import UpdateRefused
from clawd.learner.train import forward
from clawd.learner.train.base import load_base
from clawd.learner.train.batch import score, sequence_of
from clawd.learner.train.forward import kl_to, micro_batches, picked_logprobs
from clawd.learner.train.optimizer import learning_rate, make_optimizer
from clawd.learner.train.policy import Policy
from clawd.learner.train.steps import Batch, take_steps
from clawd.learner.train.trust import TrustRegion, kl_to_old, shrink
from tests.learner.tiny_base import FINGERPRINT, mixed_samples, write_tiny_base

SETTINGS = LearnSettings(
    dtype="float32", learning_rate=1e-2, steps=4, kl_target=0.01, lora=LoraSettings(rank=4, alpha=8)
)


def logits_as_hidden(*rows: list[float]) -> torch.Tensor:
    """With the identity as head, hidden states are logits."""
    return torch.tensor(rows, dtype=torch.float64).log()


class TestKl:
    def test_by_hand(self):
        # p = 1/2, 1/2 against q = 3/4, 1/4: 1/2 log(2/3) + 1/2 log 2 = 1/2 log(4/3). Equal ones: 0.
        p, q = logits_as_hidden([0.5, 0.5], [0.3, 0.7]), logits_as_hidden([0.75, 0.25], [0.3, 0.7])
        divergence = kl_to(p, q, torch.eye(2, dtype=torch.float64))
        assert divergence.tolist() == pytest.approx([0.5 * math.log(4 / 3), 0.0], abs=1e-12)

    def test_logits_need_not_be_normalised(self):
        p, q = logits_as_hidden([5.0, 5.0]), logits_as_hidden([0.3, 0.1])
        divergence = kl_to(p, q, torch.eye(2, dtype=torch.float64))
        assert divergence.item() == pytest.approx(0.5 * math.log(4 / 3), abs=1e-12)

    @pytest.mark.parametrize("chunk", [1 << 25, 64])
    def test_gradient_against_finite_differences(self, monkeypatch, chunk):
        monkeypatch.setattr(forward, "CHUNK_LOGITS", chunk)
        monkeypatch.setattr(forward, "LEAST_ROWS", 1)
        torch.manual_seed(0)
        head = torch.randn(32, 6, dtype=torch.float64)
        hidden = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
        reference = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda h: kl_to(h, reference.detach(), head), (hidden,))
        kl_to(hidden, reference, head).sum().backward()
        assert reference.grad is None

    def test_nothing_to_compare(self):
        empty, head = torch.zeros(0, 6, requires_grad=True), torch.zeros(32, 6)
        divergence = kl_to(empty, torch.zeros(0, 6), head)
        divergence.sum().backward()
        assert divergence.shape == (0,)
        assert picked_logprobs(empty, head, torch.zeros(0, 2, dtype=torch.int64)).shape == (0, 2)


class TestShrink:
    """A policy of one number x whose divergence is 4 x²."""

    def divergence(self, weight: torch.Tensor):
        return lambda: float(4 * weight**2)

    def test_by_hand(self):
        # 4 · 1² = 4 after the step from 0; the target 0.25 lies at x = 0.25, and 97 % of the way is taken.
        weight, before = torch.tensor(1.0), torch.tensor(0.0)
        kl, share = shrink([weight], [before], 0.0, 4.0, 0.25, self.divergence(weight))
        assert weight.item() == pytest.approx(0.2425, abs=1e-6)
        assert share == pytest.approx(0.2425, abs=1e-6)
        assert kl == pytest.approx(4 * 0.2425**2, abs=1e-6)

    def test_from_a_step_that_was_within(self):
        weight, before = torch.tensor(1.0), torch.tensor(0.2)
        kl, share = shrink([weight], [before], 0.16, 4.0, 0.25, self.divergence(weight))
        assert 0.16 < kl <= 0.25
        assert 0 < share < 1

    def test_where_no_part_of_the_step_helps_all_of_it_is_undone(self):
        weight, before = torch.tensor(1.0), torch.tensor(0.0)
        kl, share = shrink([weight], [before], 0.0, 4.0, 0.25, measure=lambda: 4.0)
        assert (kl, share, weight.item()) == (0.0, 0.0, 0.0)


@pytest.fixture
def policy(tmp_path) -> Policy:
    base = load_base(write_tiny_base(tmp_path / "base.gguf"), FINGERPRINT, tmp_path / "cache", torch.float32)
    return Policy(base, SETTINGS.lora, seed=0, base_name="base")


def batch_of(policy: Policy, settings: LearnSettings) -> Batch:
    groups = micro_batches([sequence_of(sample).length for sample in mixed_samples()], 64)
    return Batch(score(policy, mixed_samples(), groups, settings), groups)


def train(policy: Policy, **changes) -> tuple[dict[str, float], Batch, list[dict[str, float]]]:
    settings = SETTINGS.model_copy(update=changes)
    batch = batch_of(policy, settings)
    seen: list[dict[str, float]] = []
    optimizer = make_optimizer(policy.trainable(), settings, 1)
    return take_steps(policy, optimizer, batch, settings, lambda _, m: seen.append(m)), batch, seen


class TestTarget:
    def test_before_a_step_the_divergence_is_zero(self, policy):
        batch = batch_of(policy, SETTINGS)
        assert kl_to_old(policy, batch.scored, batch.groups) == pytest.approx(0.0, abs=1e-7)

    def test_it_is_that_of_the_whole_distributions(self, policy):
        metrics, batch, _ = train(policy, kl_target=1e9, steps=2)
        found = []
        for entry in batch.scored:
            sequence = sequence_of(entry.sample)
            ids = torch.tensor([(sequence.prompt_ids + sequence.response_ids)[:-1]])
            after = policy.hidden(ids)[0, len(sequence.prompt_ids) - 1 :] @ policy.head.T
            with policy.adapter_off():  # the update began at the base
                before = policy.hidden(ids)[0, len(sequence.prompt_ids) - 1 :] @ policy.head.T
            p, q = after.log_softmax(-1), before.log_softmax(-1)
            found.append((p.exp() * (p - q)).sum(-1))
        assert metrics["trust/kl"] == pytest.approx(float(torch.cat(found).detach().mean()), rel=1e-3)
        assert metrics["train/steps"] == 2

    def test_the_step_that_passes_is_shrunk_and_the_last(self, policy):
        metrics, batch, seen = train(policy)
        assert len(seen) < 4
        assert metrics["train/steps"] == len(seen)
        assert 0.5 * 0.01 < metrics["trust/kl"] <= 0.01
        assert 0 < metrics["trust/share"] < 1
        assert kl_to_old(policy, batch.scored, batch.groups) == pytest.approx(metrics["trust/kl"], rel=1e-4)

    def test_or_kept_and_the_last(self, policy):
        metrics, _, seen = train(policy, kl_excess="stop")
        assert len(seen) < 4
        assert metrics["trust/kl"] > 0.01
        assert metrics["trust/share"] == 1.0

    def test_within_the_target_all_steps_are_taken(self, policy):
        metrics, _, seen = train(policy, kl_target=1e9)
        assert len(seen) == 4
        assert metrics["trust/share"] == 1.0

    def test_without_a_target_nothing_is_kept_for_it(self, policy):
        metrics, batch, _ = train(policy, kl_target=None)
        assert all(entry.old_hidden is None for entry in batch.scored)
        assert not any(name.startswith("trust/") for name in metrics)

    def test_a_divergence_that_is_not_finite_is_refused(self, policy):
        batch = batch_of(policy, SETTINGS)
        next(iter(policy.trainable().values())).data.fill_(float("nan"))
        with pytest.raises(UpdateRefused, match="is nan after a step"):
            kl_to_old(policy, batch.scored, batch.groups)


def test_a_region_remembers_where_the_last_step_ended():
    weight = torch.tensor(0.0)
    region = TrustRegion([weight], lambda: float(4 * weight**2), 0.25, "shrink")
    region.before_step()
    weight.fill_(0.2)
    assert region.after_step() == {"trust/kl": pytest.approx(0.16), "trust/share": 1.0}
    assert not region.passed
    region.before_step()
    weight.fill_(1.0)
    left = region.after_step()
    assert region.passed
    assert 0.2 < weight.item() <= 0.25
    assert left["trust/kl"] <= 0.25


@pytest.mark.parametrize(
    ("schedule", "number", "rate"),
    [("constant", 9, 0.4), ("sqrt", 1, 0.4), ("sqrt", 9, 0.4 / 3), ("inverse", 8, 0.05)],
)
def test_the_rate_as_versions_grow(schedule, number, rate):
    settings = LearnSettings(learning_rate=0.4, rate_schedule=schedule)
    assert learning_rate(settings, number) == pytest.approx(rate)
    weights = {"w": torch.nn.Parameter(torch.zeros(1))}
    assert make_optimizer(weights, settings, number).param_groups[0]["lr"] == pytest.approx(rate)
