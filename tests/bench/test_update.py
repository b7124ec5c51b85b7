"""The benchmark of updates: its job is the one that it says, and its reference computes the trainer's gradients."""

import statistics
import warnings
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from clawd.bench.update.job import make_samples
from clawd.bench.update.reference import accumulate as accumulate_plainly
from clawd.bench.update.reference import read_old
from clawd.bench.update.run import QWEN3_4B, _error, budget_row
from clawd.config import LearnSettings, LoraSettings
from clawd.learner.train.base import load_base, prepare
from clawd.learner.train.batch import score, sequence_of
from clawd.learner.train.forward import micro_batches
from clawd.learner.train.policy import Policy
from clawd.learner.train.steps import Batch, accumulate
from clawd.model.vocab import Vocabulary
from tests.learner.tiny_base import FINGERPRINT, mixed_samples, write_tiny_base

SETTINGS = LearnSettings(dtype="float32", lora=LoraSettings(rank=4, alpha=8))


def test_the_job_is_of_16_samples_of_median_200_and_150_tokens_half_with_two_hints(embedded_model: Path) -> None:
    with Vocabulary.open(embedded_model) as vocabulary:
        samples, again, half = (make_samples(vocabulary, length) for length in (1.0, 1.0, 0.5))
    assert len(samples) == 16
    assert statistics.median(len(sample.prompt_ids) for sample in samples) == 200
    assert statistics.median(len(sample.response_ids) for sample in samples) == 150
    assert sorted(len(sample.hints) for sample in samples) == [0] * 8 + [2] * 8
    assert samples == again
    assert sum(len(s.prompt_ids + s.response_ids) for s in half) == pytest.approx(
        sum(len(s.prompt_ids + s.response_ids) for s in samples) / 2, rel=0.01
    )


def test_the_reference_computes_the_same_gradient_as_the_trainer(tmp_path: Path) -> None:
    gguf = write_tiny_base(tmp_path / "base.gguf")
    policy = Policy(load_base(gguf, FINGERPRINT, tmp_path, torch.float32), SETTINGS.lora, 0, "base")
    generator = torch.Generator().manual_seed(1)
    for name, weight in policy.trainable().items():
        if "lora_B" in name:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.1
    (tmp_path / "adapter").mkdir()
    policy.save(tmp_path / "adapter")
    samples = mixed_samples()
    groups = micro_batches([sequence_of(sample).length for sample in samples], 64)
    accumulate(policy, Batch(score(policy, samples, groups, SETTINGS), groups), SETTINGS)
    mine = {name: weight.grad.numpy() for name, weight in policy.trainable().items()}

    dense = AutoModelForCausalLM.from_pretrained(prepare(gguf, FINGERPRINT, tmp_path, torch.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers by a name that this is renaming
        plain = PeftModel.from_pretrained(dense, tmp_path / "adapter", is_trainable=True)
    olds = [read_old(plain, sample, SETTINGS.loss) for sample in samples]
    accumulate_plainly(plain, samples, olds, SETTINGS.loss)
    theirs = {name: weight.grad.numpy() for name, weight in plain.named_parameters() if weight.requires_grad}
    assert _error(mine, theirs) < 1e-4
    assert _error({name: 1.5 * value for name, value in theirs.items()}, theirs) == pytest.approx(0.5)


def test_the_budget_of_a_4b_model_is_told_by_part_and_fits_24_gb() -> None:
    row = budget_row("nf4", QWEN3_4B, LearnSettings())
    parts = [value for name, value in row.items() if name.endswith(", MB")]
    assert sum(parts) == pytest.approx(row["budget_mb"], abs=len(parts))
    assert 4_000 < row["budget_mb"] < 24_000
    assert row["longest sample"] == LearnSettings().max_sample_tokens
