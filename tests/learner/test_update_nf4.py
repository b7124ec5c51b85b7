"""Training over a base in nf4, by the real bitsandbytes, on the CPU. Needs the extra `quant`: `make test-nf4`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from clawd.config import LearnSettings, LoraSettings
from clawd.errors import MissingExtra
from clawd.learner.backends.local import LocalBackend
from clawd.learner.budget import Form, Work, compute
from clawd.learner.train import packed
from clawd.learner.train.base import load_base
from clawd.learner.train.batch import sequence_of
from clawd.learner.train.forward import micro_batches
from clawd.learner.train.packed import PackedLinear, dense_weight, number_format, require
from clawd.learner.train.policy import LoraLinear, Policy
from clawd.learner.train.steps import score_and_begin
from clawd.learner.train.update import run
from clawd.model.shape import read_shape
from tests.learner.tiny_base import BLOCKS, FINGERPRINT, mixed_samples, write_job, write_tiny_base

MISSING = importlib.util.find_spec("bitsandbytes") is None
needs_extra = pytest.mark.skipif(MISSING, reason="the extra `quant` isn't installed: make test-nf4")
SETTINGS = LearnSettings(
    dtype="float32",
    quantise="nf4",
    device="cpu",
    threads=1,
    nice=0,
    learning_rate=1e-2,
    max_rollout_mismatch=None,
    max_kl_old=None,
    max_kl_base=None,
    max_entropy_drift=None,
    max_mismatch_kl=10.0,  # random weights suffer most from rounding
    min_usable_share=0.0,
    lora=LoraSettings(rank=4, alpha=8),
)


def make_policy(folder: Path, quantise: str, architecture: str = "llama", dtype: torch.dtype = torch.float32) -> Policy:
    gguf = folder / f"{architecture}.gguf"
    if not gguf.exists():
        write_tiny_base(gguf, architecture)
    base = load_base(gguf, FINGERPRINT, folder / f"cache-{architecture}", dtype, "cpu", quantise)
    policy = Policy(base, SETTINGS.lora, seed=0, base_name="base")
    generator = torch.Generator().manual_seed(1)
    for name, weight in policy.trainable().items():
        if "lora_B" in name:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.3
    return policy


def gradient(policy: Policy) -> dict[str, torch.Tensor]:
    samples = mixed_samples()
    groups = micro_batches([sequence_of(sample).length for sample in samples], 64)
    score_and_begin(policy, samples, groups, SETTINGS)
    return {name: weight.grad.clone() for name, weight in policy.trainable().items()}


@needs_extra
class TestPacked:
    def test_every_linear_layer_of_the_blocks_and_nothing_else(self, tmp_path: Path) -> None:
        policy = make_policy(tmp_path, "nf4")
        layers = [module for module in policy.model.modules() if isinstance(module, LoraLinear)]
        assert len(layers) == 7 * BLOCKS
        assert all(type(layer.get_base_layer()) is PackedLinear for layer in layers)
        assert policy.model.get_base_model().lm_head.weight.dtype == torch.float32

    def test_a_layer_takes_an_eighth_of_float32_and_comes_back_within_nf4s_rounding(self, tmp_path: Path) -> None:
        torch.manual_seed(0)
        plain = torch.nn.Linear(256, 512, bias=True)
        layer = PackedLinear(plain, torch.device("cpu"))
        assert layer.weight.nbytes == 256 * 512 // 2
        assert (layer.in_features, layer.out_features, number_format(layer)) == (256, 512, torch.float32)
        assert torch.equal(layer.bias, plain.bias)
        back, weight = dense_weight(layer), plain.weight.detach()
        assert torch.equal(back, dense_weight(layer))
        assert float((back - weight).norm() / weight.norm()) < 0.12

    @pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
    def test_gradients_are_those_over_the_unpacked_weights(self, tmp_path: Path, architecture: str) -> None:
        mine = gradient(make_policy(tmp_path, "nf4", architecture))
        dense = make_policy(tmp_path, "none", architecture)
        other = make_policy(tmp_path, "nf4", architecture)
        packed_layers = dict(other.model.named_modules())
        for name, module in dense.model.named_modules():
            if isinstance(module, LoraLinear):
                module.get_base_layer().weight.data = dense_weight(packed_layers[name].get_base_layer())
        expected = gradient(dense)
        assert all(torch.equal(mine[name], expected[name]) for name in expected)
        assert any(value.abs().sum() > 0 for value in mine.values())

    def test_its_size_is_the_computed_one(self, tmp_path: Path) -> None:
        policy = make_policy(tmp_path, "nf4")
        size = 0
        for module in policy.model.modules():
            if isinstance(module, PackedLinear):
                state = module.state
                size += module.weight.nbytes + state.absmax.nbytes + state.state2.absmax.nbytes
        form = Form("cpu", "float32", "nf4", checkpointing=False)
        computed = compute(read_shape(tmp_path / "llama.gguf"), Work(64), SETTINGS, form).parts["blocks"]
        assert size == pytest.approx(computed, rel=0.02)  # the last scales of a layer stand for fewer weights


@needs_extra
@pytest.mark.parametrize("checkpointing", ["never", "always"])
def test_an_update_over_nf4_is_made_and_served(tmp_path: Path, checkpointing: str) -> None:
    base = write_tiny_base(tmp_path / "base.gguf")
    settings = SETTINGS.model_copy(update={"checkpointing": checkpointing})
    outcome = run(write_job(tmp_path / "job", base, tmp_path / "cache", mixed_samples(), settings))
    assert outcome.state == "staged", outcome.reason
    assert outcome.metrics["train/first_ratio"] == 1.0
    assert outcome.metrics["effect/praised_logprob"] > 0 > outcome.metrics["effect/rejected_logprob"]
    # What is served is the adapter over another rounding of the base.
    assert outcome.metrics["validate/base_mismatch_kl"] > 1e-3


def test_without_the_extra_its_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "PACKAGE", "no_such_module")
    with pytest.raises(MissingExtra, match=r"clawd\[quant\]"):
        require()
    with pytest.raises(MissingExtra):
        load_base(tmp_path / "no.gguf", FINGERPRINT, tmp_path, torch.float32, "cpu", "nf4")


@pytest.mark.skipif(not MISSING, reason="the extra `quant` is installed")
def test_and_no_update_is_begun(tmp_path: Path) -> None:
    told = LocalBackend(tmp_path / "log", SETTINGS).unavailable() or ""
    assert "learn.quantise = nf4" in told and "clawd[quant]" in told
