"""Distillation by the whole divergence between teacher and current policy, either way, on real forward passes."""

import math

import pytest
import torch

from clawd.config import LearnSettings, LoraSettings
from clawd.learner.train import forward
from clawd.learner.train.base import load_base
from clawd.learner.train.batch import response_logprobs, score
from clawd.learner.train.forward import TokenSequence, kl_from, kl_to, pad, response_hidden
from clawd.learner.train.gate import gains
from clawd.learner.train.optimizer import make_optimizer
from clawd.learner.train.policy import Policy
from clawd.learner.train.steps import Batch, accumulate, take_steps
from tests.learner.tiny_base import FINGERPRINT, make_sample, write_tiny_base

FORMS = ["forward", "reverse"]


def chosen(steps: int = 1, **loss: object) -> LearnSettings:
    lora = LoraSettings(rank=4, alpha=8)
    return LearnSettings.model_validate(
        {"dtype": "float32", "learning_rate": 1e-2, "steps": steps, "lora": lora, "loss": {"method": "opd", **loss}}
    )


@pytest.fixture
def policy(tmp_path) -> Policy:
    gguf = write_tiny_base(tmp_path / "base.gguf")
    dense = load_base(gguf, FINGERPRINT, tmp_path, torch.float32)
    return Policy(dense, LoraSettings(rank=4, alpha=8), 0, "base")


def make_different(policy: Policy) -> None:
    """From the base, so that the two teachers differ."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in policy.trainable().items():
            if "lora_B" in name:
                weight.normal_(std=0.2)


class TestKlFrom:
    def test_by_hand(self):
        # q = 3/4, 1/4 against p = 1/2, 1/2: 3/4 log(3/2) + 1/4 log(1/2). Equal ones: 0.
        p, q = (torch.tensor(rows, dtype=torch.float64).log() for rows in ([[1.0, 1], [3, 7]], [[3.0, 1], [0.3, 0.7]]))
        expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
        assert kl_from(p, q, torch.eye(2, dtype=torch.float64)).tolist() == pytest.approx([expected, 0.0], abs=1e-12)

    @pytest.mark.parametrize("chunk", [1 << 25, 64])
    def test_gradient_against_finite_differences(self, monkeypatch, chunk):
        monkeypatch.setattr(forward, "CHUNK_LOGITS", chunk)
        monkeypatch.setattr(forward, "LEAST_ROWS", 1)
        torch.manual_seed(0)
        head = torch.randn(32, 6, dtype=torch.float64)
        hidden = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
        reference = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda h: kl_from(h, reference.detach(), head), (hidden,))
        kl_from(hidden, reference, head).sum().backward()
        assert reference.grad is None

    def test_it_is_the_other_direction(self):
        torch.manual_seed(0)
        head, p, q = torch.randn(32, 6), torch.randn(5, 6), torch.randn(5, 6)
        assert torch.allclose(kl_from(p, q, head), kl_to(q, p, head), atol=1e-5)

    def test_nothing_to_compare(self):
        empty = torch.zeros(0, 6, requires_grad=True)
        divergence = kl_from(empty, torch.zeros(0, 6), torch.zeros(32, 6))
        divergence.sum().backward()
        assert divergence.shape == (0,)


class TestTarget:
    def read(self, policy: Policy, teacher: str, prompt: list[int], response: list[int]) -> torch.Tensor:
        """Hidden states of the response after `prompt`, as the teacher reads it."""
        batch = pad([TokenSequence(prompt, response)], policy.device)
        with torch.no_grad():
            if teacher == "old":
                return response_hidden(policy, batch)
            with policy.adapter_off():
                return response_hidden(policy, batch)

    @pytest.mark.parametrize("teacher", ["old", "base"])
    def test_the_teacher_that_was_told(self, policy, teacher):
        make_different(policy)
        sample = make_sample(3, None, 1)
        (entry,) = score(policy, [sample], [[0]], chosen(opd_form="forward", teacher=teacher))
        told = self.read(policy, teacher, sample.hints[0].prompt_ids, sample.response_ids)
        assert torch.allclose(entry.target, told, atol=1e-4)

    @pytest.mark.parametrize("teacher", ["old", "base"])
    def test_guidance_exaggerates_what_the_hint_changes(self, policy, teacher):
        make_different(policy)
        sample = make_sample(3, None, 1)
        (entry,) = score(policy, [sample], [[0]], chosen(opd_form="forward", teacher=teacher, guidance=3.0))
        told = self.read(policy, teacher, sample.hints[0].prompt_ids, sample.response_ids)
        plain = self.read(policy, teacher, sample.prompt_ids, sample.response_ids)
        logits = 3 * (told @ policy.head.T) - 2 * (plain @ policy.head.T)
        assert torch.allclose(entry.target @ policy.head.T, logits, atol=1e-3)

    def test_the_clipped_form_keeps_none(self, policy):
        (entry,) = score(policy, [make_sample(3, None, 1)], [[0]], chosen(opd_form="clipped"))
        assert entry.target is None


def divergences(policy: Policy, settings: LearnSettings) -> list[float]:
    """The loss before each of the steps."""
    samples = [make_sample(number, None, 1) for number in range(3)]
    scored = score(policy, samples, [[0, 1, 2]], settings)
    seen: list[float] = []
    optimizer = make_optimizer(policy.trainable(), settings, 1)
    take_steps(policy, optimizer, Batch(scored, [[0, 1, 2]]), settings, lambda _, told: seen.append(told["opd/kl"]))
    return seen


@pytest.mark.parametrize("form", FORMS)
def test_steps_bring_the_policy_to_its_teacher(policy, form):
    seen = divergences(policy, chosen(steps=6, opd_form=form))
    assert seen[0] > 0
    assert seen[-1] < 0.5 * seen[0]


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_without_a_hint_pulls_nowhere(policy, form):
    """In a batch with one that has a hint."""
    settings = chosen(opd_form=form, method="hybrid", rl_weight=0.0)
    told, untold = make_sample(0, None, 1), make_sample(1, 1, 0)

    def gradient(samples: list) -> torch.Tensor:
        groups = [[index] for index in range(len(samples))]
        scored = score(policy, samples, groups, settings)
        for weight in policy.trainable().values():
            weight.grad = None
        accumulate(policy, Batch(scored, groups), settings)
        return torch.cat([weight.grad.flatten() for weight in policy.trainable().values()])

    alone, beside = gradient([told]), gradient([told, untold])
    assert torch.allclose(alone, 2 * beside, atol=1e-6)  # the loss is meaned over the samples
    assert alone.abs().sum() > 0


@pytest.mark.parametrize("form", FORMS)
def test_the_gate_asks_whether_held_back_samples_came_nearer_to_their_teacher(policy, form):
    """And not whether a rejected response became unlikelier: the teacher may find most of it likelier."""
    settings = chosen(steps=6, opd_form=form)
    held_back = score(policy, [make_sample(0, -1, 1), make_sample(7, -1, 0)], [[0, 1]], settings)
    assert gains(policy, held_back, settings.loss) == pytest.approx([0.0, 0.0], abs=1e-6)
    divergences(policy, settings)
    nearer, rewarded = gains(policy, held_back, settings.loss)
    assert nearer > 0
    assert held_back[0].divergence is not None and held_back[1].divergence is None
    (new,) = response_logprobs(policy, [held_back[1].sample], [[0]])
    assert rewarded == pytest.approx(-float((new - held_back[1].old).mean()), abs=1e-6)
