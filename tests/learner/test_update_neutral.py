"""The regulariser at neutral prompts: the base's own answers, kept, and a pull towards the base."""

import json

import pytest
import torch

from clawd.config import LearnSettings, LoraSettings, LossSettings
from clawd.learner.neutral import PROMPTS, neutral_prompts
from clawd.learner.train.base import load_base
from clawd.learner.train.forward import TokenSequence
from clawd.learner.train.neutral import accumulate_neutral, greedy, neutral_answers, read_neutral
from clawd.learner.train.policy import Policy
from clawd.learner.train.steps import Batch, accumulate
from tests.learner.tiny_base import FINGERPRINT, write_tiny_base

SETTINGS = LearnSettings(dtype="float32", lora=LoraSettings(rank=4, alpha=8), loss=LossSettings(neutral_weight=0.5))
ASKED = [[5, 6, 7], [9, 8, 7, 6, 5, 4], [3]]


@pytest.fixture
def policy(tmp_path) -> Policy:
    base = load_base(write_tiny_base(tmp_path / "base.gguf"), FINGERPRINT, tmp_path / "cache", torch.float32)
    policy = Policy(base, SETTINGS.lora, seed=0, base_name="base")
    generator = torch.Generator().manual_seed(1)
    for name, weight in policy.trainable().items():
        if "lora_B" in name:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.1
    return policy


def test_answers_are_the_bases_most_likely_tokens(policy):
    answer = greedy(policy, ASKED[0], 6)
    with policy.adapter_off():
        for place in range(6):
            ids = torch.tensor([ASKED[0] + answer[:place]])
            assert answer[place] == int((policy.hidden(ids)[0, -1] @ policy.head.T).argmax())


def test_an_end_token_ends_them(policy):
    free = greedy(policy, ASKED[0], 6)
    policy.model.get_base_model().generation_config.eos_token_id = free[2]
    assert greedy(policy, ASKED[0], 6) == free[: free.index(free[2]) + 1]


def test_they_are_kept_and_made_again_where_damaged(policy, tmp_path):
    first = neutral_answers(policy, ASKED, tmp_path, "base-float32")
    (path,) = tmp_path.glob("neutral-*.json")
    assert json.loads(path.read_text()) == first
    kept = [[1, 2], [3], [4]]
    path.write_text(json.dumps(kept))
    assert neutral_answers(policy, ASKED, tmp_path, "base-float32") == kept
    for damage in ("", "[[1]", "[[1], [2]]", '[["a"], [1], [2]]', "[[], [1], [2]]", "7"):
        path.write_text(damage)
        assert neutral_answers(policy, ASKED, tmp_path, "base-float32") == first
    assert neutral_answers(policy, ASKED[:2], tmp_path, "base-float32") == first[:2]
    assert len(list(tmp_path.glob("neutral-*.json"))) == 2


def plain_loss(policy: Policy, sequences: list[TokenSequence]) -> torch.Tensor:
    means = []
    for sequence in sequences:
        ids = torch.tensor([(sequence.prompt_ids + sequence.response_ids)[:-1]])
        cur = policy.hidden(ids)[0, len(sequence.prompt_ids) - 1 :] @ policy.head.T
        with torch.no_grad(), policy.adapter_off():
            base = policy.hidden(ids)[0, len(sequence.prompt_ids) - 1 :] @ policy.head.T
        p, q = cur.log_softmax(-1), base.log_softmax(-1)
        means.append((p.exp() * (p - q)).sum(-1).mean())
    return 0.5 * torch.stack(means).mean()


@pytest.mark.parametrize("budget", [16, 1000])
def test_loss_and_gradient_are_those_of_the_plain_form(policy, tmp_path, budget):
    groups = read_neutral(policy, ASKED, tmp_path, "base-float32", budget)
    loss, metrics = accumulate_neutral(policy, groups, 0.5)
    gradients = {name: weight.grad.clone() for name, weight in policy.trainable().items()}
    for weight in policy.trainable().values():
        weight.grad = None
    sequences = [sequence for group in groups for sequence in group.sequences]
    expected = plain_loss(policy, sequences)
    expected.backward()
    assert loss == pytest.approx(expected.item(), abs=1e-6)
    assert metrics["neutral/kl_base"].value > 0
    largest = max(float(weight.grad.abs().max()) for weight in policy.trainable().values())
    assert largest > 0
    for name, weight in policy.trainable().items():
        assert torch.allclose(gradients[name], weight.grad, rtol=1e-3, atol=1e-4 * largest), name


def test_at_the_base_there_is_neither_loss_nor_gradient(policy, tmp_path):
    for name, weight in policy.trainable().items():
        if "lora_B" in name:
            weight.data.zero_()
    loss, _ = accumulate_neutral(policy, read_neutral(policy, ASKED, tmp_path, "k", 64), 0.5)
    assert loss == pytest.approx(0.0, abs=1e-6)
    assert all(float(weight.grad.abs().max()) < 1e-6 for weight in policy.trainable().values())


def test_it_is_a_part_of_the_batch(policy, tmp_path):
    neutral = read_neutral(policy, ASKED, tmp_path, "k", 64)
    loss, metrics = accumulate(policy, Batch([], [], neutral), SETTINGS)
    assert loss == pytest.approx(plain_loss(policy, [s for g in neutral for s in g.sequences]).item(), abs=1e-6)
    assert list(metrics) == ["neutral/kl_base"]


def test_each_version_takes_the_next_prompts():
    def render(messages: list[dict]) -> list[int]:
        return [PROMPTS.index(messages[0]["content"])]

    seen = [neutral_prompts(4, number, render) for number in range(1, 5)]
    assert seen[0] == [[4], [5], [6], [7]]
    assert sorted(place for version in seen for (place,) in version) == list(range(16))
    assert len(PROMPTS) == 16
