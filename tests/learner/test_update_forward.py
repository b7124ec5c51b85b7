"""Packing, the output head, the LoRA layer, and that the trainer and llama.cpp see the same model."""

import math
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from clawd.config import LearnSettings, LoraSettings
from clawd.errors import ModelError
from clawd.learner.job import HintPrompt
from clawd.learner.train import forward
from clawd.learner.train.base import load_base, matmul_precision, training_dtype
from clawd.learner.train.batch import loss_inputs, score, sequence_of
from clawd.learner.train.courtesy import Courtesy
from clawd.learner.train.forward import TokenSequence, entropies, micro_batches, pad, picked_logprobs, read_head, unpack
from clawd.learner.train.policy import Policy
from clawd.learner.train.steps import Batch, accumulate, score_and_begin
from clawd.learner.train.teachers import read_teacher, shared_length, teaching
from clawd.learner.train.validate import ask_llama, validate
from clawd.model.lora import read_lora_base, write_adapter_file
from tests.learner.tiny_base import FINGERPRINT, VOCABULARY, mixed_samples, write_tiny_base

SETTINGS = LearnSettings(dtype="float32", lora=LoraSettings(rank=4, alpha=8))


def make_policy(folder, architecture: str = "llama", trained: bool = True) -> Policy:
    """A float32 policy on a tiny base; `trained`: with a B that matters."""
    gguf = write_tiny_base(folder / f"{architecture}.gguf", architecture)
    base = load_base(gguf, FINGERPRINT, folder / f"cache-{architecture}", torch.float32)
    policy = Policy(base, SETTINGS.lora, seed=0, base_name=gguf.name)
    if trained:
        generator = torch.Generator().manual_seed(1)
        for name, weight in policy.trainable().items():
            if "lora_B" in name:
                weight.data = torch.randn(weight.shape, generator=generator) * 0.3
    return policy


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Policy:
    return make_policy(tmp_path_factory.mktemp("policy"))


class TestPacking:
    def test_groups_stay_within_the_budget_and_lose_nothing(self):
        lengths = [10, 3, 50, 7, 10, 1]
        groups = micro_batches(lengths, budget=20)
        assert groups == [[2], [0, 4], [3, 1], [5]]
        assert sorted(index for group in groups for index in group) == list(range(6))
        assert all(len(g) == 1 or max(lengths[i] for i in g) * len(g) <= 20 for g in groups)

    def test_nothing_to_pack(self):
        assert micro_batches([], 10) == []

    def test_padding_by_hand(self):
        batch = pad([TokenSequence([5, 6], [7, 8]), TokenSequence([1], [2])], torch.device("cpu"))
        assert batch.input_ids.tolist() == [[5, 6, 7], [1, 0, 0]]
        assert batch.response_ids.tolist() == [[7, 8], [2, 0]]
        assert batch.tokens.tolist() == [[True, True], [True, False]]
        assert batch.positions.tolist() == [[1, 2], [0, 0]]

    def test_unpack_by_hand(self):
        tokens = torch.tensor([[True, True], [True, False]])
        assert unpack(torch.tensor([1.0, 2.0, 3.0]), tokens).tolist() == [[1.0, 2.0], [3.0, 0.0]]


class TestHead:
    @pytest.mark.parametrize("chunk", [1 << 25, 64])
    def test_gradient_against_finite_differences(self, monkeypatch, chunk):
        monkeypatch.setattr(forward, "CHUNK_LOGITS", chunk)
        monkeypatch.setattr(forward, "LEAST_ROWS", 1)
        torch.manual_seed(0)
        head = torch.randn(32, 6, dtype=torch.float64)
        hidden = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
        ids = torch.tensor([[0, 3], [1, 1], [31, 2], [5, 6], [7, 7]])
        assert torch.autograd.gradcheck(lambda h: picked_logprobs(h, head, ids), (hidden,))

    def test_equals_log_softmax(self):
        torch.manual_seed(0)
        head, hidden = torch.randn(32, 6), torch.randn(5, 6)
        ids = torch.arange(10).reshape(5, 2)
        expected = torch.log_softmax(hidden @ head.T, dim=-1)
        values, chosen, entropy = read_head(hidden, head, ids, k=3)
        assert torch.equal(chosen, torch.cat([ids, expected.topk(3).indices], dim=1))
        assert torch.allclose(values, expected.gather(1, chosen), atol=1e-6)
        assert torch.equal(values, picked_logprobs(hidden, head, chosen))
        with_gradient, _, entropy_with_gradient = read_head(hidden.clone().requires_grad_(), head, ids, k=3)
        assert torch.equal(values, with_gradient)
        assert torch.equal(entropy, entropy_with_gradient)
        assert torch.equal(entropy, entropies(hidden, head))

    def test_entropy_by_hand(self):
        head = torch.tensor([[0.0], [1.0]])  # logits 0 and h
        found = entropies(torch.tensor([[0.0], [math.log(3.0)], [1e4]]), head)
        quarter = 0.25 * math.log(4.0) + 0.75 * math.log(4.0 / 3.0)
        assert torch.allclose(found, torch.tensor([math.log(2.0), quarter, 0.0]), atol=1e-6)

    def test_large_logits_stay_finite(self):
        head, hidden = torch.eye(4) * 1e4, torch.eye(4)[:1]
        values, _, entropy = read_head(hidden, head, torch.tensor([[0, 1]]), 0)
        assert values.tolist() == [[0.0, -1e4]]
        assert entropy.tolist() == [0.0]

    @pytest.mark.parametrize(("chunk", "block"), [(1 << 24, 1 << 17), (3000, 1500), (1, 1)])
    @pytest.mark.parametrize(
        ("dtype", "sharpness", "tolerance"),
        [(torch.float64, 0.01, 1e-12), (torch.float64, 30.0, 1e-12), (torch.float32, 1.0, 3e-6)],
    )
    def test_against_the_plain_formula_in_float64(self, monkeypatch, chunk, block, dtype, sharpness, tolerance):
        monkeypatch.setattr(forward, "CHUNK_LOGITS", chunk)
        monkeypatch.setattr(forward, "BLOCK_LOGITS", block)
        torch.manual_seed(0)
        head, hidden = torch.randn(700, 24).to(dtype), (torch.randn(11, 24) * sharpness).to(dtype)
        ids = torch.randint(0, 700, (11, 2))
        plain = (hidden.double() @ head.double().T).log_softmax(dim=-1)
        expected = -(plain.exp() * plain).sum(dim=-1)
        for leaf in (hidden, hidden.clone().requires_grad_()):
            values, chosen, entropy = read_head(leaf, head, ids, 4)
            assert torch.equal(chosen, torch.cat([ids, plain.topk(4).indices], dim=1))
            assert torch.allclose(values.double(), plain.gather(1, chosen), rtol=tolerance, atol=tolerance)
            assert torch.allclose(entropy.double(), expected, rtol=tolerance, atol=tolerance)
            assert not entropy.requires_grad


class TestMatmulPrecision:
    def test_medium_only_where_it_rounds_nothing_that_counts(self):
        assert matmul_precision(torch.bfloat16, set()) == "medium"
        assert matmul_precision(torch.float32, {"avx512f", "avx512_bf16"}) == "medium"
        assert matmul_precision(torch.float32, {"avx512f", "avx512_bf16", "amx_bf16"}) == "highest"
        assert matmul_precision(torch.float32, set()) == "highest"

    def test_float32_is_float32_on_this_machine(self):
        before = torch.get_float32_matmul_precision()
        torch.manual_seed(0)
        left, right = torch.randn(256, 512), torch.randn(512, 768)
        torch.set_float32_matmul_precision(matmul_precision(torch.float32))
        try:
            product = left @ right
        finally:
            torch.set_float32_matmul_precision(before)
        exact = left.double() @ right.double()
        assert float((product - exact).norm() / exact.norm()) < 1e-6


class TestLoraLayer:
    def test_gradients_equal_those_of_the_plain_product(self, policy):
        layer = dict(policy.model.named_modules())["base_model.model.model.layers.0.mlp.up_proj"]
        a, b = layer.factors()
        weight = layer.get_base_layer().weight
        torch.manual_seed(0)
        x, pull = torch.randn(2, 3, weight.shape[1]), torch.randn(2, 3, weight.shape[0])

        def gradients(product) -> list[Tensor]:
            leaves = [x.clone().requires_grad_(), a, b]
            loss = (product(leaves[0]) * pull).sum()
            return [loss.detach(), *torch.autograd.grad(loss, leaves)]

        plain = gradients(lambda x: x @ weight.T + 2.0 * (x @ a.T) @ b.T)  # α / r = 2
        for mine, expected in zip(gradients(layer), plain, strict=True):
            assert torch.allclose(mine, expected, rtol=1e-4, atol=1e-4)

    def test_off_is_the_base(self, policy):
        ids = torch.arange(1, 9)[None]
        with_adapter = policy.hidden(ids)
        with policy.adapter_off():
            without = policy.hidden(ids)
        assert not torch.allclose(with_adapter, without, atol=1e-2)
        assert torch.equal(policy.hidden(ids), with_adapter)

    def test_every_linear_layer_of_the_blocks_and_nothing_else(self, policy):
        names = [name for name, _ in policy.pairs()]
        assert len(names) == 14
        assert all(name.startswith("model.layers.") for name in names)
        assert {name.split(".")[-2] for name in policy.trainable()} == {"default"}
        assert all(weight.dtype == torch.float32 for weight in policy.trainable().values())

    # PEFT asks transformers by a name that transformers is renaming.
    @pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
    def test_plain_peft_reads_what_was_saved(self, policy, tmp_path):
        from peft import PeftModel

        policy.save(tmp_path)
        gguf = write_tiny_base(tmp_path / "llama.gguf")
        base = load_base(gguf, FINGERPRINT, tmp_path / "cache", torch.float32)
        plain = PeftModel.from_pretrained(base, tmp_path)
        ids = torch.arange(1, 9)[None]
        expected = plain.get_base_model().model(input_ids=ids, use_cache=False).last_hidden_state
        assert torch.allclose(policy.hidden(ids), expected, atol=1e-4)
        assert sorted(path.name for path in tmp_path.glob("adapter*")) == [
            "adapter_config.json",
            "adapter_model.safetensors",
        ]


class TestGradientOfTheBatch:
    def gradient(self, policy: Policy, budget: int) -> tuple[float, dict[str, Tensor]]:
        samples = mixed_samples()
        settings = SETTINGS.model_copy(update={"micro_batch_tokens": budget})
        groups = micro_batches([sequence_of(sample).length for sample in samples], budget)
        scored = score(policy, samples, groups, settings)
        for weight in policy.trainable().values():
            weight.grad = None
        loss, _ = accumulate(policy, Batch(scored, groups), settings)
        return loss, {name: weight.grad.clone() for name, weight in policy.trainable().items()}

    def test_micro_batching_does_not_change_it(self, policy):
        whole_loss, whole = self.gradient(policy, budget=10_000)
        for budget in (64, 32):
            loss, parts = self.gradient(policy, budget)
            assert loss == pytest.approx(whole_loss, abs=1e-6)
            largest = max(float(gradient.abs().max()) for gradient in whole.values())
            for name, gradient in parts.items():
                assert torch.allclose(gradient, whole[name], rtol=1e-4, atol=1e-5 * largest), name

    @pytest.mark.parametrize(
        "loss",
        [
            {"opd_form": "clipped"},
            {"teacher": "base"},
            {"kl_base_weight": 0.1},
            {"support": "overlap", "hint_choice": "token"},
            {"opd_form": "forward"},
            {"opd_form": "reverse", "teacher": "base", "guidance": 2.0},
        ],
        ids=["default", "teacher", "kl_base", "overlap", "forward", "reverse"],
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_scoring_begins_the_first_step_with_the_gradient_that_it_would_have(self, tmp_path, loss, dtype):
        gguf = write_tiny_base(tmp_path / "base.gguf")
        policy = Policy(load_base(gguf, FINGERPRINT, tmp_path, dtype), SETTINGS.lora, 0, "base")
        settings = SETTINGS.model_copy(update={"loss": SETTINGS.loss.model_copy(update=loss)})
        samples = mixed_samples()
        groups = micro_batches([sequence_of(sample).length for sample in samples], 64)
        scored, begun = score_and_begin(policy, samples, groups, settings)
        at_once = {name: weight.grad.clone() for name, weight in policy.trainable().items()}
        again = score(policy, samples, groups, settings)
        assert all(torch.equal(a.teacher_support, b.teacher_support) for a, b in zip(scored, again, strict=True))
        assert all(torch.equal(a.old, b.old) for a, b in zip(scored, again, strict=True))
        for weight in policy.trainable().values():
            weight.grad = None
        loss_later, metrics = accumulate(policy, Batch(again, groups), settings)
        assert (begun.loss, begun.metrics) == (loss_later, metrics)
        assert all(torch.equal(at_once[name], weight.grad) for name, weight in policy.trainable().items())
        assert any(gradient.abs().sum() > 0 for gradient in at_once.values())

    @pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
    @pytest.mark.parametrize("teacher", ["old", "base"])
    def test_a_teacher_says_the_same_whether_its_prompt_was_read_before_or_is_read_whole(
        self, tmp_path, architecture, teacher
    ):
        policy = make_policy(tmp_path, architecture)
        samples = mixed_samples()
        settings = SETTINGS.model_copy(update={"loss": SETTINGS.loss.model_copy(update={"teacher": teacher})})
        scored = score(policy, samples, [list(range(len(samples)))], settings)
        hinted = [(sample, entry) for sample, entry in zip(samples, scored, strict=True) if sample.hints]
        assert any(shared_length(sample) > 0 for sample, _ in hinted)
        for sample, entry in hinted:
            with policy.adapter_off() if teacher == "base" else nullcontext():
                whole = read_teacher(policy, sample, [], entry.support_ids, 64)
            expected = teaching(whole, entry.support_ids, settings.loss, "")
            assert torch.allclose(entry.teacher_support, expected.support, atol=1e-4)

    def test_what_prompts_share_ends_before_the_last_token_of_each(self):
        def told(prompt: list[int], *hints: list[int]) -> int:
            prompts = [HintPrompt(hint_id=str(n), text="", prompt_ids=ids) for n, ids in enumerate(hints)]
            return shared_length(mixed_samples()[0].model_copy(update={"prompt_ids": prompt, "hints": prompts}))

        assert told([1, 2, 3, 9], [1, 2, 5, 6, 9]) == 2
        assert told([1, 2, 3, 9], [1, 2, 3, 9]) == 3
        assert told([1, 2, 3, 9], [1, 2, 3, 4, 9], [1, 7, 9]) == 1
        assert told([1], [1, 2]) == 0
        assert told([1, 2], [3, 2]) == 0

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_the_first_ratio_is_exactly_one(self, tmp_path, dtype):
        gguf = write_tiny_base(tmp_path / "base.gguf")
        base = load_base(gguf, FINGERPRINT, tmp_path, dtype)
        policy = Policy(base, SETTINGS.lora, 0, "base")
        samples = mixed_samples()
        groups = micro_batches([sequence_of(sample).length for sample in samples], 64)
        scored = score(policy, samples, groups, SETTINGS)
        for group in groups:
            inputs = loss_inputs(policy, [scored[index] for index in group], SETTINGS.loss)
            assert torch.equal(inputs.cur, inputs.old)
            assert torch.equal(inputs.cur_support, inputs.old_support)
            assert inputs.cur.requires_grad and inputs.cur_support.requires_grad
            assert not any(
                t.requires_grad for t in (inputs.old, inputs.old_support, inputs.teacher_support, inputs.rollout)
            )

    def test_padding_neighbours_do_not_change_a_sample(self, policy):
        samples = mixed_samples()
        alone = score(policy, samples[1:2], [[0]], SETTINGS)[0]
        among = score(policy, samples, [list(range(len(samples)))], SETTINGS)[1]
        assert torch.allclose(alone.old, among.old, atol=1e-5)
        assert torch.allclose(alone.teacher_support, among.teacher_support, atol=1e-4)

    def test_overlap_support_is_what_student_and_teacher_share(self, policy):
        samples = mixed_samples()
        overlap = SETTINGS.model_copy(update={"loss": SETTINGS.loss.model_copy(update={"support": "overlap"})})
        scored = score(policy, samples, [list(range(len(samples)))], overlap)
        inputs = loss_inputs(policy, scored, SETTINGS.loss)
        (hint,) = samples[2].hints
        told = samples[2].model_copy(update={"prompt_ids": hint.prompt_ids})
        (teacher,) = score(policy, [told], [[0]], SETTINGS)
        for i, ids in enumerate(scored[2].support_ids.tolist()):
            shared = set(teacher.support_ids[i].tolist())
            assert inputs.support[2, i].tolist() == [v in shared for v in ids]
        assert not inputs.support[2].all()

    def test_base_logprobs_only_when_asked(self, policy):
        samples = mixed_samples()
        groups = [list(range(len(samples)))]
        assert score(policy, samples, groups, SETTINGS)[0].base is None
        asked = SETTINGS.model_copy(update={"loss": SETTINGS.loss.model_copy(update={"kl_base_weight": 0.1})})
        base = score(policy, samples, groups, asked)[0].base
        with policy.adapter_off():
            expected = score(policy, samples, groups, SETTINGS)[0].old
        assert torch.allclose(base, expected, atol=1e-5)


class TestAgreement:
    """The trainer's distributions against llama.cpp's, adapter on: a wrong permutation or scale can't hide."""

    @pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
    def test_with_llama_cpp(self, tmp_path, architecture):
        policy = make_policy(tmp_path, architecture)
        gguf = tmp_path / f"{architecture}.gguf"
        base = read_lora_base(gguf, FINGERPRINT)
        adapter = tmp_path / "adapter.gguf"
        pairs = dict(policy.pairs())
        names = base.tensor_names(pairs)
        write_adapter_file(adapter, base, {names[m]: pair for m, pair in pairs.items()}, policy.alpha)
        answer = validate(adapter, gguf, base, policy, mixed_samples(), SETTINGS, Courtesy())
        assert answer["validate/base_mismatch_kl"] < 1e-5
        assert answer["validate/mismatch_kl"] < 1e-4
        assert answer["validate/effect_kl"] > 0.05

        unpermuted = replace(base, architecture="qwen2" if architecture == "llama" else "llama")
        assert swapped_kl(tmp_path, policy, base, unpermuted, gguf) > 0.01

    def test_a_base_that_llama_cpp_cannot_load_is_a_failure_with_its_reason(self, tmp_path):
        np.savez(
            tmp_path / "q.npz", windows=1, window_0=np.arange(4), last=2, threads=1, on=np.zeros(1), off=np.zeros(1)
        )
        (tmp_path / "bad.gguf").write_bytes(b"GGUF")
        from clawd.errors import UpdateFailed

        with pytest.raises(UpdateFailed, match=r"llama\.cpp can't load"):
            ask_llama(tmp_path / "q.npz", tmp_path / "bad.gguf", tmp_path / "bad.gguf", Courtesy())


def swapped_kl(folder, policy, base, other, gguf) -> float:
    """The mismatch of a file whose rows are in the other architecture's order."""
    from clawd.errors import UpdateRefused
    from clawd.model.lora import LoraPair, permute_rows, rotary_heads

    names = base.tensor_names(dict(policy.pairs()))
    pairs = {}
    for module, pair in policy.pairs():
        name = names[module]
        heads = base.head_count if "attn_q." in name else base.kv_head_count if "attn_k." in name else None
        undone = pair.b
        if rotary_heads(base, name) and heads:  # permute backwards first, so that writing cancels it
            size = pair.b.shape[0] // heads
            undone = pair.b.reshape(heads, size // 2, 2, -1).swapaxes(1, 2).reshape(pair.b.shape)
        elif heads:
            undone = permute_rows(pair.b, heads)
        pairs[name] = LoraPair(pair.a, undone)
    path = folder / "swapped.gguf"
    write_adapter_file(path, base, pairs, policy.alpha)
    strict = SETTINGS.model_copy(update={"max_mismatch_kl": 1e6})
    try:
        return validate(path, gguf, base, policy, mixed_samples(), strict, Courtesy())["validate/mismatch_kl"]
    except UpdateRefused:
        return float("inf")


class TestBase:
    def test_is_cached_and_a_damaged_cache_is_made_again(self, tmp_path):
        gguf = write_tiny_base(tmp_path / "base.gguf")
        loaded = load_base(gguf, FINGERPRINT, tmp_path / "cache", torch.float32).state_dict()
        first = {name: value.clone() for name, value in loaded.items()}  # the file is mapped: damage would show in it
        del loaded
        (weights,) = (tmp_path / "cache").glob("*/model.safetensors")
        whole = weights.read_bytes()
        for damage in (whole[: len(whole) // 2], whole[:-4] + b"\x00\x01\x02\x03", b""):
            weights.write_bytes(damage)
            again = load_base(gguf, FINGERPRINT, tmp_path / "cache", torch.float32).state_dict()
            assert all(torch.equal(first[name], again[name]) for name in first)
            del again
            assert weights.read_bytes() == whole
        assert [path.name for path in (tmp_path / "cache").glob("dense-*")] == [weights.parent.name]

    def test_the_cache_is_used(self, tmp_path):
        gguf = write_tiny_base(tmp_path / "base.gguf")
        load_base(gguf, FINGERPRINT, tmp_path / "cache", torch.float32)
        gguf.unlink()
        assert load_base(gguf, FINGERPRINT, tmp_path / "cache", torch.float32).config.vocab_size == VOCABULARY

    def test_another_base_has_another_cache(self, tmp_path):
        for number in (0, 1):
            gguf = write_tiny_base(tmp_path / f"{number}.gguf", seed=number)
            load_base(gguf, str(number) * 64, tmp_path / "cache", torch.float32)
        assert len(list((tmp_path / "cache").glob("dense-*"))) == 2

    def test_a_file_that_is_no_model(self, tmp_path):
        (tmp_path / "bad.gguf").write_bytes(b"GGUFnonsense")
        with pytest.raises(ModelError, match="can't be loaded for training"):
            load_base(tmp_path / "bad.gguf", FINGERPRINT, tmp_path / "cache", torch.float32)

    def test_dtype(self):
        assert training_dtype("bfloat16") == torch.bfloat16
        assert training_dtype("float32") == torch.float32
        assert training_dtype("auto") in (torch.bfloat16, torch.float32)


def test_made_ahead_it_is_found_and_what_a_killed_process_left_goes(tmp_path):
    gguf = write_tiny_base(tmp_path / "base.gguf")
    cache = tmp_path / "cache"
    cache.mkdir()
    name = f"dense-{FINGERPRINT[:32]}-float32"
    (cache / f".{name}.4711").mkdir()
    (cache / f".{name}.4711" / "model.safetensors").write_bytes(b"half")

    command = [
        sys.executable,
        "-m",
        "clawd.learner.train.prepare",
        str(gguf),
        FINGERPRINT,
        str(cache),
        "float32",
        "cpu",
        "60",
    ]
    subprocess.run(command, check=True)

    assert sorted(path.name for path in cache.iterdir()) == [f".{name}.lock", name]
    made = (cache / name).stat().st_mtime_ns
    load_base(gguf, FINGERPRINT, cache, torch.float32)
    assert (cache / name).stat().st_mtime_ns == made
