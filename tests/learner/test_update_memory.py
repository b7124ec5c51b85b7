"""Layers that are computed again, gates that keep less, tensors that follow the device."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from torch import Tensor
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP

from clawd.config import LearnSettings, LoraSettings
from clawd.learner.job import OUTCOME_FILE, Outcome
from clawd.learner.train.base import load_base
from clawd.learner.train.batch import sequence_of
from clawd.learner.train.drift import drift
from clawd.learner.train.forward import micro_batches
from clawd.learner.train.gate import gains
from clawd.learner.train.gated import gated, use_lean_gates
from clawd.learner.train.machine import give_back_memory
from clawd.learner.train.neutral import read_neutral
from clawd.learner.train.optimizer import make_optimizer
from clawd.learner.train.policy import Policy
from clawd.learner.train.steps import Batch, accumulate, effect, mismatch, score_and_begin, take_steps
from clawd.learner.train.update import run
from tests.learner.tiny_base import BLOCKS, FINGERPRINT, mixed_samples, write_job, write_tiny_base

SETTINGS = LearnSettings(dtype="float32", max_kl_old=None, lora=LoraSettings(rank=4, alpha=8))


def make_policy(folder: Path, architecture: str, dtype: torch.dtype, *, checkpointing: bool) -> Policy:
    """On a tiny base, with a B that matters."""
    gguf = folder / f"{architecture}.gguf"
    if not gguf.exists():
        write_tiny_base(gguf, architecture)
    base = load_base(gguf, FINGERPRINT, folder / f"cache-{architecture}", dtype)
    policy = Policy(base, SETTINGS.lora, seed=0, base_name=gguf.name, checkpointing=checkpointing)
    generator = torch.Generator().manual_seed(1)
    for name, weight in policy.trainable().items():
        if "lora_B" in name:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.3
    return policy


def gradients(policy: Policy, settings: LearnSettings) -> tuple[list[object], dict[str, Tensor], dict[str, Tensor]]:
    """What scoring knows, its gradient of the first step, and that of a step of its own."""
    samples = mixed_samples()
    groups = micro_batches([sequence_of(sample).length for sample in samples], 64)
    scored, begun = score_and_begin(policy, samples, groups, settings)
    first = {name: weight.grad.clone() for name, weight in policy.trainable().items()}
    for weight in policy.trainable().values():
        weight.grad = None
    loss, _ = accumulate(policy, Batch(scored, groups), settings)
    told = [begun.loss, loss, *(entry.teacher_support.tolist() for entry in scored)]
    return told, first, {name: weight.grad.clone() for name, weight in policy.trainable().items()}


class TestCheckpointing:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("architecture", ["llama", "qwen3"])
    @pytest.mark.parametrize("loss", [{}, {"teacher": "base", "kl_base_weight": 0.1}], ids=["old", "base"])
    def test_gradients_are_the_same_to_the_bit(
        self, tmp_path: Path, architecture: str, dtype: torch.dtype, loss: dict
    ) -> None:
        settings = SETTINGS.model_copy(update={"loss": SETTINGS.loss.model_copy(update=loss)})
        kept, again = (
            gradients(make_policy(tmp_path, architecture, dtype, checkpointing=way), settings) for way in (False, True)
        )
        assert kept[0] == again[0]
        for plain, recomputed in zip(kept[1:], again[1:], strict=True):
            assert plain.keys() == recomputed.keys()
            assert all(torch.equal(plain[name], recomputed[name]) for name in plain)
        assert any(gradient.abs().sum() > 0 for gradient in kept[1].values())

    def test_each_layer_runs_twice_with_a_gradient_and_once_without(self, tmp_path: Path) -> None:
        policy = make_policy(tmp_path, "llama", torch.float32, checkpointing=True)
        runs: list[int] = []
        for number, layer in enumerate(policy.model.get_base_model().model.layers):
            layer.mlp.register_forward_pre_hook(lambda *_, number=number: runs.append(number))
        ids = torch.arange(1, 9)[None]
        with torch.no_grad():
            policy.hidden(ids)
        assert runs == list(range(BLOCKS))
        policy.hidden(ids).sum().backward()
        assert runs == [*range(BLOCKS), *range(BLOCKS), *reversed(range(BLOCKS))]

    def test_a_graph_holds_less(self, tmp_path: Path) -> None:
        def saved(checkpointing: bool) -> int:
            """Bytes of the distinct tensors that the layers leave for the backward pass."""
            policy = make_policy(tmp_path, "llama", torch.float32, checkpointing=checkpointing)
            sizes: dict[int, int] = {}
            keep: list[Tensor] = []

            def pack(tensor: Tensor) -> Tensor:
                keep.append(tensor)
                sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                policy.hidden(torch.arange(1, 65)[None])
            return sum(sizes.values())

        assert saved(True) < 0.2 * saved(False)

    def test_an_update_with_it_gives_the_same_adapter(self, tmp_path: Path) -> None:
        base = write_tiny_base(tmp_path / "base.gguf")
        settings = LearnSettings(
            dtype="float32", threads=1, nice=0, max_rollout_mismatch=None, min_usable_share=0.0, device="cpu"
        )
        made = []
        for way in ("never", "always"):
            chosen = settings.model_copy(update={"checkpointing": way})
            folder = write_job(tmp_path / way, base, tmp_path / "cache", mixed_samples(), chosen)
            outcome = run(folder)
            assert outcome.state == "staged", outcome.reason
            assert outcome.metrics["memory/checkpointing"] == (way == "always")
            assert outcome.metrics["memory/budget_mb"] > 0
            made.append((folder / "result" / "adapter_model.safetensors").read_bytes())
        assert made[0] == made[1]


class TestGate:
    def test_against_finite_differences(self) -> None:
        torch.manual_seed(0)
        gate, up = (torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
        assert torch.autograd.gradcheck(gated, (gate, up))

    def test_it_is_put_where_the_known_one_was_and_says_the_same(self) -> None:
        torch.manual_seed(0)
        mlp = LlamaMLP(LlamaConfig(hidden_size=8, num_attention_heads=2, intermediate_size=12))
        x = torch.randn(2, 3, 8)
        plain = mlp(x)
        use_lean_gates(mlp)
        assert "forward" in vars(mlp)
        assert torch.equal(mlp(x), plain)

    def test_another_activation_is_left_alone(self) -> None:
        mlp = LlamaMLP(LlamaConfig(hidden_size=8, num_attention_heads=2, intermediate_size=12, hidden_act="gelu"))
        use_lean_gates(mlp)
        assert "forward" not in vars(mlp)


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """What is made without a device lands on another than the model's: mixing the two is an error."""
    with torch.device("meta"):
        yield


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "loss",
    [{}, {"teacher": "base", "kl_base_weight": 0.1, "hint_choice": "random"}, {"support": "overlap"}],
    ids=["default", "base", "overlap"],
)
def test_every_tensor_of_an_update_is_made_on_the_policys_device(tmp_path: Path, loss: dict) -> None:
    with torch.device("cpu"):
        policy = make_policy(tmp_path, "llama", torch.float32, checkpointing=True)
    settings = SETTINGS.model_copy(update={"loss": SETTINGS.loss.model_copy(update=loss), "kl_target": 1.0})
    samples = mixed_samples()
    groups = micro_batches([sequence_of(sample).length for sample in samples], 64)
    scored, begun = score_and_begin(policy, samples, groups, settings)
    neutral = read_neutral(policy, [[3, 4, 5]], tmp_path, "key", 64)
    batch = Batch(scored, groups, neutral=neutral, held_back=scored[:2], begun=begun)
    optimizer = make_optimizer(policy.trainable(), settings, 1)
    metrics = take_steps(policy, optimizer, batch, settings, lambda *_: None)
    metrics |= mismatch(scored, 2.0) | effect(policy, batch) | drift(policy, scored, groups)
    assert all(isinstance(value, float) for value in metrics.values())
    assert len(gains(policy, scored[:3], settings.loss)) == 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_what_the_heap_holds_free_is_given_back() -> None:
    process, size, count = psutil.Process(), 1 << 16, 2000
    held = [bytearray(b"x" * size) for _ in range(count)]
    del held[:-1]  # the last one pins the heap's end
    before = process.memory_info().rss
    give_back_memory()
    assert before - process.memory_info().rss > size * count / 2


class TestRoom:
    def outcome(self, tmp_path: Path, **changes: object) -> Outcome:
        base = write_tiny_base(tmp_path / "base.gguf")
        settings = SETTINGS.model_copy(update={"nice": 0, "threads": 1, **changes})
        folder = write_job(tmp_path / "job", base, tmp_path / "cache", mixed_samples(), settings)
        run(folder)
        return Outcome.model_validate_json((folder / OUTCOME_FILE).read_text())

    def test_without_it_nothing_is_loaded_and_the_remedies_are_named(self, tmp_path: Path) -> None:
        told = self.outcome(tmp_path, max_memory_mb=300, device="cpu", checkpointing="never")
        assert (told.state, told.deferred) == ("failed", True)
        for part in ("not enough memory", "learn.max_memory_mb = 300", "learn.checkpointing = auto", "nf4"):
            assert part in (told.reason or "")
        assert not (tmp_path / "cache").exists()

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_a_device_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        told = self.outcome(tmp_path, device="cuda:3")
        assert (told.state, told.deferred) == ("failed", False)
        assert "learn.device = cuda:3, but torch sees no GPU" in (told.reason or "")
