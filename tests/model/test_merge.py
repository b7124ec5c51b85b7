"""A merged file says what the base says with the adapter; everything else in it is the base's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from clawd.errors import AdapterRejected
from clawd.model.fingerprint import fingerprint
from clawd.model.lora import LoraBase, read_lora_base
from clawd.model.merge import merge
from tests.adapter_files import base_of, write_version


def agreement(base: Path, adapter: Path, merged: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "clawd.learner.merge_check", str(base), str(adapter), str(merged)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def adapter_for(base: LoraBase, folder: Path, strength: float) -> Path:
    write_version(folder, base, 3, strength=strength)
    return folder / "adapter.gguf"


@pytest.mark.parametrize("model", ["tiny_model", "embedded_model"])
def test_same_answers_as_base_and_adapter(model: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(model)
    base = base_of(path, tmp_path)
    adapter = adapter_for(base, tmp_path / "v", 1.0)
    merged = tmp_path / "merged.gguf"
    merge(path, base, adapter, merged, "clawd@a:v1")
    found = agreement(path, adapter, merged)
    assert found["mismatch_kl"] < 0.01
    assert found["effect_kl"] > 20 * found["mismatch_kl"]
    without = agreement(path, adapter, path)
    assert without["mismatch_kl"] == pytest.approx(without["effect_kl"])  # what the check says of a file without it


def test_the_rest_is_copied(tiny_model: Path, tmp_path: Path) -> None:
    base = base_of(tiny_model, tmp_path)
    merged = tmp_path / "merged.gguf"
    merge(tiny_model, base, adapter_for(base, tmp_path / "v", 1.0), merged, "clawd@a:v1")
    before, after = gguf.GGUFReader(tiny_model), gguf.GGUFReader(merged)
    fields = {name: field.contents() for name, field in before.fields.items() if not name.startswith("GGUF.")}
    kept = {name: field.contents() for name, field in after.fields.items() if name in fields}
    assert kept == fields
    assert after.get_field("clawd.merged.adapter").contents() == "clawd@a:v1"
    assert after.get_field("clawd.merged.base.sha256").contents() == fingerprint(tiny_model, tmp_path)
    tensors = {tensor.name: tensor for tensor in after.tensors}
    assert [tensor.name for tensor in before.tensors] == [tensor.name for tensor in after.tensors]
    for tensor in before.tensors:
        other = tensors[tensor.name]
        assert list(other.shape) == list(tensor.shape)
        if tensor.name in base.linears:
            assert other.tensor_type == gguf.GGMLQuantizationType.F16
        else:
            assert other.tensor_type == tensor.tensor_type
            assert np.array_equal(other.data, tensor.data)


def test_an_adapter_that_is_damaged_or_too_strong_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    base = base_of(tiny_model, tmp_path)
    write_version(tmp_path / "strong", base, 3, strength=1e4, alpha=10_000)
    strong = tmp_path / "strong" / "adapter.gguf"
    with pytest.raises(AdapterRejected, match="range of float16"):
        merge(tiny_model, base, strong, tmp_path / "x.gguf", "a")
    strong.write_bytes(b"GGUF")
    with pytest.raises(AdapterRejected, match="damaged"):
        merge(tiny_model, base, strong, tmp_path / "x.gguf", "a")
    other = read_lora_base(tiny_model, "0" * 64)
    with pytest.raises(AdapterRejected, match="another base"):
        merge(tiny_model, other, adapter_for(base, tmp_path / "v", 1.0), tmp_path / "x.gguf", "a")
