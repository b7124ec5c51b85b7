"""Adapter files: what is written can be read, and every kind of damage is refused with its reason (case A5)."""

import pickle
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from clawd.errors import AdapterRejected, ModelError
from clawd.model.gguf_header import read_header
from clawd.model.lora import LoraBase, LoraPair, check_adapter_file, permute_rows, read_lora_base, write_adapter_file
from tests.learner.tiny_base import BLOCKS, FINGERPRINT, HIDDEN, write_tiny_base

RANK = 4


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> LoraBase:
    return read_lora_base(write_tiny_base(tmp_path_factory.mktemp("base") / "base.gguf"), FINGERPRINT)


def pairs_for(base: LoraBase) -> dict[str, LoraPair]:
    random = np.random.default_rng(0)
    return {
        name: LoraPair(random.normal(size=(RANK, columns)), random.normal(size=(rows, RANK)))
        for name, (rows, columns) in base.linears.items()
    }


@pytest.fixture
def adapter(tmp_path, base) -> Path:
    path = tmp_path / "adapter.gguf"
    write_adapter_file(path, base, pairs_for(base), alpha=8.0)
    return path


def rewritten(path: Path, base: LoraBase, change) -> Path:
    """The adapter with `change(pairs)` made to its factors."""
    pairs = pairs_for(base)
    change(pairs)
    write_adapter_file(path, base, pairs, alpha=8.0)
    return path


def test_a_good_file_passes_and_holds_what_was_written(adapter, base):
    check_adapter_file(adapter, base)
    reader = gguf.GGUFReader(adapter)
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    pair = pairs_for(base)["blk.1.ffn_up.weight"]
    assert reader.get_field("adapter.lora.alpha").contents() == 8.0
    assert np.allclose(tensors["blk.1.ffn_up.weight.lora_a"], pair.a, atol=2e-3)
    assert np.allclose(tensors["blk.1.ffn_up.weight.lora_b"], pair.b, atol=2e-3)
    assert len(tensors) == 2 * 7 * BLOCKS


def test_an_empty_file(tmp_path, base):
    path = tmp_path / "empty.gguf"
    path.touch()
    with pytest.raises(AdapterRejected, match="is empty"):
        check_adapter_file(path, base)


def test_no_file(tmp_path, base):
    with pytest.raises(AdapterRejected, match="can't be read"):
        check_adapter_file(tmp_path / "nowhere.gguf", base)


@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 0.99])
def test_a_half_written_file(adapter, base, share):
    data = adapter.read_bytes()
    adapter.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(AdapterRejected, match=r"half-written|not a GGUF"):
        check_adapter_file(adapter, base)


def test_a_pickle(tmp_path, base):
    path = tmp_path / "adapter.bin"
    path.write_bytes(pickle.dumps({"lora": 1}))
    with pytest.raises(AdapterRejected, match="GGUF form only"):
        check_adapter_file(path, base)


def test_a_wrong_shape(tmp_path, base):
    def narrow(pairs):
        pair = pairs["blk.0.attn_v.weight"]
        pairs["blk.0.attn_v.weight"] = LoraPair(pair.a[:, :-1], pair.b)

    with pytest.raises(AdapterRejected, match=r"blk\.0\.attn_v\.weight is \(32, 64\)"):
        check_adapter_file(rewritten(tmp_path / "a.gguf", base, narrow), base)


def test_factors_of_different_rank(tmp_path, base):
    def shorten(pairs):
        pair = pairs["blk.0.ffn_up.weight"]
        pairs["blk.0.ffn_up.weight"] = LoraPair(pair.a[:-1], pair.b)

    with pytest.raises(AdapterRejected, match="its factors are"):
        check_adapter_file(rewritten(tmp_path / "a.gguf", base, shorten), base)


@pytest.mark.parametrize("factor", ["a", "b", "both"])
def test_all_zero(tmp_path, base, factor):
    def clear(pairs):
        for name, pair in pairs.items():
            pairs[name] = LoraPair(pair.a * (factor == "b"), pair.b * (factor == "a"))

    with pytest.raises(AdapterRejected, match="without effect"):
        check_adapter_file(rewritten(tmp_path / "a.gguf", base, clear), base)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9])
def test_a_number_that_is_not_finite(tmp_path, base, value):
    def spoil(pairs):
        pairs["blk.1.ffn_down.weight"].b[3, 1] = value  # 1e9 is beyond float16

    with np.errstate(over="ignore"), pytest.raises(AdapterRejected, match=r"blk\.1\.ffn_down\.weight\.lora_b.*finite"):
        check_adapter_file(rewritten(tmp_path / "a.gguf", base, spoil), base)


def test_a_renamed_key(adapter, base):
    adapter.write_bytes(adapter.read_bytes().replace(b"blk.0.ffn_up.weight.lora_a", b"blk.0.ffn_op.weight.lora_a"))
    with pytest.raises(AdapterRejected, match=r"1 tensors are missing, first blk\.0\.ffn_up.*1 are unknown.*ffn_op"):
        check_adapter_file(adapter, base)


def test_another_base(adapter, base):
    other = LoraBase("7" * 64, base.architecture, base.block_count, base.head_count, base.kv_head_count, base.linears)
    with pytest.raises(AdapterRejected, match="made for another base"):
        check_adapter_file(adapter, other)


def test_a_model_is_no_adapter(tmp_path, base):
    with pytest.raises(AdapterRejected, match=r"general\.type"):
        check_adapter_file(write_tiny_base(tmp_path / "base.gguf"), base)


def test_an_alpha_that_is_no_scale(tmp_path, base):
    path = tmp_path / "a.gguf"
    write_adapter_file(path, base, pairs_for(base), alpha=0.0)
    with pytest.raises(AdapterRejected, match=r"adapter\.lora\.alpha = 0\.0"):
        check_adapter_file(path, base)


def test_permutation_by_hand():
    # One head of four rows: HF rotates (0, 2) and (1, 3); GGUF wants each pair side by side.
    rows = np.arange(4.0)[:, None]
    assert permute_rows(rows, heads=1)[:, 0].tolist() == [0.0, 2.0, 1.0, 3.0]
    assert permute_rows(np.arange(8.0)[:, None], heads=2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert permute_rows(rows, heads=None) is rows


def test_names_of_modules(base):
    modules = [
        f"model.layers.{block}.{part}"
        for block in range(BLOCKS)
        for part in (
            *(f"self_attn.{letter}_proj" for letter in "qkvo"),
            *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        )
    ]
    names = base.tensor_names(modules)
    assert names["model.layers.1.self_attn.o_proj"] == "blk.1.attn_output.weight"
    assert {*names.values()} == {*base.linears}
    with pytest.raises(ModelError, match="not those of the model file"):
        base.tensor_names([*modules, "lm_head"])
    with pytest.raises(ModelError, match=r"blk\.0\.attn_q\.weight"):
        base.tensor_names(modules[1:])


def test_an_architecture_that_is_not_covered(tmp_path):
    path = write_tiny_base(tmp_path / "base.gguf", "gemma2")
    with pytest.raises(ModelError, match="'gemma2'; adapters can be made for llama, qwen2, qwen3 only"):
        read_lora_base(path, FINGERPRINT)


class TestHeader:
    def test_agrees_with_the_gguf_package(self, tmp_path):
        path = write_tiny_base(tmp_path / "base.gguf")
        header, reader = read_header(path), gguf.GGUFReader(path)
        assert header.tensors == {t.name: tuple(reversed(t.shape.tolist())) for t in reader.tensors}
        assert header.integer("llama.embedding_length") == HIDDEN
        assert header.text("general.architecture") == "llama"
        with pytest.raises(ModelError, match=r"no `llama\.nothing`"):
            header.integer("llama.nothing")

    def test_passes_over_arrays(self, tmp_path):
        path = tmp_path / "arrays.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_token_list(["a", "bc", "äöü"])
        writer.add_token_scores([1.0, 2.0, 3.0])
        writer.add_string("last", "here")
        writer.add_tensor("blk.0.x.weight", np.zeros((3, 5), dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        header = read_header(path)
        assert header.text("last") == "here"
        assert header.tensors == {"blk.0.x.weight": (3, 5)}

    @pytest.mark.parametrize("damage", [lambda d: b"", lambda d: b"PK\x03\x04" + d[4:], lambda d: d[:150]])
    def test_damage_is_named(self, tmp_path, damage):
        path = write_tiny_base(tmp_path / "base.gguf")
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(ModelError, match="not a readable GGUF file"):
            read_header(path)

    def test_a_wild_count_is_not_believed(self, tmp_path):
        path = write_tiny_base(tmp_path / "base.gguf")
        data = bytearray(path.read_bytes())
        data[16:24] = b"\xff" * 8
        path.write_bytes(bytes(data))
        with pytest.raises(ModelError, match="a count of"):
            read_header(path)


def test_checking_loads_no_torch():
    script = "import sys, clawd.model.lora; sys.exit('torch' in sys.modules or 'llama_cpp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
