"""The computed memory of an update: by hand, by its choices, and what is said where there is no room."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clawd.bench.update.run import QWEN3_4B
from clawd.config import LearnSettings, LoraSettings
from clawd.errors import ModelError, NoRoom
from clawd.learner.budget import Budget, Form, Place, Work, choose, compute
from clawd.model.shape import ModelShape, read_shape
from tests.learner.tiny_base import BLOCKS, HEADS, HIDDEN, INNER, KV_HEADS, VOCABULARY, write_tiny_base

SHAPE = ModelShape(
    hidden=100, layers=10, heads=4, kv_heads=2, head_size=25, inner=300, vocabulary=1000, tied=True, head_norms=False
)
LINEAR = 100 * 100 * 2 + 50 * 100 * 2 + 300 * 100 * 3  # of a block
SETTINGS = LearnSettings(micro_batch_tokens=64, lora=LoraSettings(rank=4))
WORK = Work(tokens=200)
DENSE = Form("cpu", "bfloat16", "none", checkpointing=False)
GB24 = 24_000  # 10⁶ bytes


def budget(settings: LearnSettings = SETTINGS, work: Work = WORK, shape: ModelShape = SHAPE, **form: object) -> Budget:
    return compute(shape, work, settings, replace(DENSE, **form))


class TestParts:
    def test_weights_by_hand(self) -> None:
        parts = budget().parts
        assert parts["blocks"] == 10 * LINEAR * 2
        assert (parts["embedding"], parts["float32 head"]) == (1000 * 100 * 2, 1000 * 100 * 4)
        wide = budget(dtype="float32").parts
        assert wide["blocks"] == 10 * LINEAR * 4
        assert (wide["embedding"], wide["float32 head"]) == (1000 * 100 * 4, 0)
        untied = budget(shape=replace(SHAPE, tied=False)).parts
        assert untied["embedding"] == 2 * parts["embedding"]

    def test_nf4_is_four_bits_and_the_scales(self) -> None:
        packed = budget(quantise="nf4").parts
        assert packed["blocks"] == pytest.approx(10 * LINEAR * (0.5 + 1 / 64 + 4 / 16384), abs=1)
        assert packed["layer at work"] == budget().parts["layer at work"] + 300 * 100 * 2  # one dense at a time

    def test_lora_by_hand(self) -> None:
        numbers = 10 * 4 * (200 + 150 + 150 + 200 + 400 + 400 + 400)
        parts = budget().parts
        assert parts["AdamW"] == numbers * 8
        assert parts["LoRA, gradients"] == numbers * 8 + numbers * 2  # and what the graph keeps of it in bfloat16
        bounded = SETTINGS.model_copy(update={"kl_target": 0.02})
        assert budget(bounded).parts["LoRA, gradients"] == parts["LoRA, gradients"] + numbers * 8

    def test_checkpointing_keeps_a_layers_input_alone(self) -> None:
        assert budget(checkpointing=True).parts["activations"] == 200 * 10 * 100 * 4
        kept = 200 * 10 * (2 * 100 * (4 + 2) + 8 + (2 * 100 + 2 * 50) * 2 + 3 * 300 * 2 + 7 * 4 * 2)
        assert budget().parts["activations"] == kept

    def test_short_samples_still_fill_a_micro_batch(self) -> None:
        assert budget(work=Work(tokens=10)).parts == budget(work=Work(tokens=64)).parts
        assert budget(work=Work(tokens=10)).total < budget(work=Work(tokens=65)).total

    def test_hints_cost_keys_and_values(self) -> None:
        def teachers(hints: int, checkpointing: bool) -> int:
            return budget(work=Work(200, hints), checkpointing=checkpointing).parts["teachers"]

        one = 200 * 2 * 50 * 2 * 10
        assert [teachers(hints, False) for hints in (0, 1, 3)] == [0, one, 3 * one]
        assert teachers(1, True) == 2 * one  # the student's own, which no graph holds


class TestChoice:
    def places(self, free_mb: float) -> list:
        return [(Place("cpu", free_mb), "bfloat16")]

    def test_nothing_is_computed_again_while_there_is_room(self) -> None:
        plan = choose(SHAPE, WORK, SETTINGS, self.places(10_000))
        assert (plan.place.name, plan.budget.form) == ("cpu", DENSE)

    def test_and_all_is_where_there_is_room_only_then(self) -> None:
        quick, small = budget().total_mb, budget(checkpointing=True).total_mb
        assert small < quick
        plan = choose(SHAPE, WORK, SETTINGS, self.places(quick - 1))
        assert plan.budget.form.checkpointing
        bounded = SETTINGS.model_copy(update={"max_memory_mb": quick - 1})
        assert choose(SHAPE, WORK, bounded, self.places(10_000)).budget.form.checkpointing

    def test_the_settings_may_say_which(self) -> None:
        always = SETTINGS.model_copy(update={"checkpointing": "always"})
        assert choose(SHAPE, WORK, always, self.places(10_000)).budget.form.checkpointing
        never = SETTINGS.model_copy(update={"checkpointing": "never"})
        with pytest.raises(NoRoom, match=r"learn\.checkpointing = auto"):
            choose(SHAPE, WORK, never, self.places(budget().total_mb - 1))

    def test_a_gpu_without_room_is_passed_over(self) -> None:
        gpu = (Place("cuda:0", 100), "bfloat16")
        assert choose(SHAPE, WORK, SETTINGS, [gpu, *self.places(10_000)]).place.name == "cpu"
        roomy = (Place("cuda:1", 10_000), "bfloat16")
        plan = choose(SHAPE, WORK, SETTINGS, [roomy, *self.places(10_000)])
        assert (plan.place.name, plan.budget.form.kind) == ("cuda:1", "cuda")

    def test_what_would_need_less_is_named_with_what_it_needs(self) -> None:
        wide = SETTINGS.model_copy(update={"micro_batch_tokens": 4096})
        with pytest.raises(NoRoom) as refused:
            choose(QWEN3_4B, WORK, wide, self.places(500))
        told = str(refused.value)
        for remedy in ("learn.quantise = nf4 (", "learn.micro_batch_tokens = 200 (", "learn.lora.rank = 2", "cpu"):
            assert remedy in told
        assert "learn.checkpointing" not in told  # auto has tried it

    def test_no_figure_of_what_is_free_is_in_it(self) -> None:
        def told(free_mb: float) -> str:
            with pytest.raises(NoRoom) as refused:
                choose(QWEN3_4B, WORK, SETTINGS, self.places(free_mb))
            return str(refused.value)

        assert told(400) == told(401)


class TestShape:
    @pytest.mark.parametrize(("architecture", "head", "norms"), [("llama", 16, False), ("qwen3", 128, True)])
    def test_is_read_from_the_file(self, tmp_path: Path, architecture: str, head: int, norms: bool) -> None:
        shape = read_shape(write_tiny_base(tmp_path / "base.gguf", architecture))
        assert shape == ModelShape(
            HIDDEN, BLOCKS, HEADS, KV_HEADS, head, INNER, VOCABULARY, tied=False, head_norms=norms
        )

    def test_of_the_embedded_model(self, embedded_model: Path) -> None:
        assert read_shape(embedded_model) == ModelShape(576, 30, 9, 3, 64, 1536, 49152, tied=True, head_norms=False)

    def test_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "bad.gguf").write_bytes(b"GGUFnonsense")
        with pytest.raises(ModelError):
            read_shape(tmp_path / "bad.gguf")


def test_a_4b_model_in_nf4_fits_a_gpu_of_24_gb_and_dense_in_float32_it_does_not() -> None:
    settings, work = LearnSettings(), Work(tokens=2048, hints=2)
    small = compute(QWEN3_4B, work, settings, Form("cuda", "bfloat16", "nf4", checkpointing=True))
    large = compute(QWEN3_4B, work, settings, Form("cuda", "float32", "none", checkpointing=False))
    assert settings.lora.rank == 16
    assert small.total < GB24 * 1e6 < large.total
