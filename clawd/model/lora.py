"""LoRA in GGUF form: what the tensors are called, writing, and the check before anything is served.

Guarantees that a file that passes `check_adapter_file` is whole, finite, not zero, and made for this very base. Loads
no torch: the server uses it. Source of the form: llama.cpp's `convert_lora_to_gguf.py`, tensors `<base tensor>.lora_a`
(r, in) and `<base tensor>.lora_b` (out, r); the product B A is multiplied by alpha / r.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from clawd.errors import AdapterRejected, ModelError
from clawd.model.gguf_header import MAGIC, read_header

FINGERPRINT_KEY = "clawd.base.sha256"
ALPHA_KEY = "adapter.lora.alpha"

PERMUTES_ROTARY_ROWS = {"llama": True, "qwen2": False, "qwen3": False}
"""The covered architectures, and whether GGUF orders the rows of q_proj and k_proj otherwise than HF does.

llama.cpp rotates neighbouring pairs for `llama` and halves for the others; HF always halves. An architecture belongs
here when a test has compared both sides' logits: a wrong order does not fail, it only learns nonsense.
"""

Array = NDArray[np.floating]


@dataclass(frozen=True)
class LoraPair:
    """The two factors of one linear layer, float: `a` (r, in), `b` (out, r)."""

    a: Array
    b: Array


@dataclass(frozen=True)
class LoraBase:
    """What an adapter must know about the model it is for."""

    fingerprint: str
    architecture: str
    block_count: int
    head_count: int
    kv_head_count: int
    linears: Mapping[str, tuple[int, int]]  # base tensor name of every linear layer of the blocks → (out, in)

    def tensor_names(self, modules: Iterable[str]) -> dict[str, str]:
        """HF module name, such as `model.layers.0.mlp.up_proj` → base tensor name.

        Raises:
            ModelError: a module is no linear layer of a block of this model, or a layer of the model is not among them.
        """
        known = gguf.get_tensor_name_map(_architecture_enum(self.architecture), self.block_count)
        names = {module: f"{known.get_name(module)}.weight" for module in modules}
        strange = {*names.values()} ^ {*self.linears}
        if strange:
            raise ModelError(f"The trained layers are not those of the model file: {', '.join(sorted(strange)[:3])}.")
        return names


def read_lora_base(path: Path, fingerprint: str) -> LoraBase:
    """Read the head of the served GGUF; `fingerprint` is its hash, computed elsewhere.

    Raises:
        ModelError: damaged, or of an architecture that clawd can't make adapters for.
    """
    header = read_header(path)
    architecture = header.text("general.architecture")
    if architecture not in PERMUTES_ROTARY_ROWS:
        raise ModelError(
            f"{path.name} has architecture {architecture!r}; adapters can be made for "
            f"{', '.join(sorted(PERMUTES_ROTARY_ROWS))} only. Serve it without learning (learn.enabled = false)."
        )
    heads = header.integer(f"{architecture}.attention.head_count")
    kv_heads = int(header.scalars.get(f"{architecture}.attention.head_count_kv", heads))
    linears = {
        name: (shape[0], shape[1])
        for name, shape in header.tensors.items()
        if name.startswith("blk.") and name.endswith(".weight") and len(shape) == 2
    }
    blocks = header.integer(f"{architecture}.block_count")
    return LoraBase(fingerprint, architecture, blocks, heads, kv_heads, linears)


def write_adapter_file(path: Path, base: LoraBase, pairs: Mapping[str, LoraPair], alpha: float) -> None:
    """Write HF-ordered `pairs`, keyed by base tensor name, as `path`. Not atomic: write into a folder of your own.

    float16 halves what every decoded token reads. The factors are far inside its range, and its rounding is part of
    what each update measures against the trainer's distributions.
    """
    writer = gguf.GGUFWriter(path, base.architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32(ALPHA_KEY, alpha)
    writer.add_string(FINGERPRINT_KEY, base.fingerprint)
    for name in base.linears:
        pair = pairs[name]
        b = permute_rows(pair.b, rotary_heads(base, name))
        writer.add_tensor(f"{name}.lora_a", np.ascontiguousarray(pair.a, dtype=np.float16))
        writer.add_tensor(f"{name}.lora_b", np.ascontiguousarray(b, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rotary_heads(base: LoraBase, name: str) -> int | None:
    """The number of heads whose rows GGUF orders its own way in tensor `name`; none: same order as HF."""
    if not PERMUTES_ROTARY_ROWS[base.architecture]:
        return None
    if name.endswith(".attn_q.weight"):
        return base.head_count
    return base.kv_head_count if name.endswith(".attn_k.weight") else None


def permute_rows(b: Array, heads: int | None) -> Array:
    """(out, r) in HF's order → GGUF's: inside each head, (half, pair) becomes (pair, half)."""
    if heads is None:
        return b
    return b.reshape(heads, 2, b.shape[0] // heads // 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)


def check_adapter_file(path: Path, base: LoraBase) -> None:
    """Refuse a file that must not be loaded; returns if it may.

    Raises:
        AdapterRejected: names what is wrong: unreadable, half-written, for another base, a tensor missing, unknown or
            of a wrong shape, a number that isn't finite, or nothing but zeros.
    """
    reader = _open(path)
    _check_metadata(path, reader, base)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    expected = {f"{name}.{factor}" for name in base.linears for factor in ("lora_a", "lora_b")}
    _check_names(path, set(tensors), expected)
    changes = False
    for name, (out_features, in_features) in base.linears.items():
        a, b = tensors[f"{name}.lora_a"], tensors[f"{name}.lora_b"]
        rank = _check_shapes(path, name, a, b, out_features, in_features)
        _check_finite(path, a)
        _check_finite(path, b)
        changes = changes or (rank > 0 and bool(a.data.any()) and bool(b.data.any()))
    if not changes:
        raise AdapterRejected(f"{path} is without effect: every product of its factors is zero.")


def _open(path: Path) -> gguf.GGUFReader:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise AdapterRejected(f"{path} can't be read: {error}") from error
    if magic != MAGIC:
        what = "is empty" if not magic else f"is not a GGUF file (it begins with {magic!r})"
        raise AdapterRejected(f"{path} {what}; adapters are taken in GGUF form only.")
    try:
        return gguf.GGUFReader(path)
    except Exception as error:  # the reader has no error of its own: a cut file ends in any of numpy's
        raise AdapterRejected(f"{path} is damaged or half-written: {error}") from error


def _check_metadata(path: Path, reader: gguf.GGUFReader, base: LoraBase) -> None:
    wanted = {
        "general.type": "adapter",
        "adapter.type": "lora",
        "general.architecture": base.architecture,
        FINGERPRINT_KEY: base.fingerprint,
    }
    for key, value in wanted.items():
        field = reader.get_field(key)
        found = field.contents() if field is not None else None
        if found != value:
            hint = ": it was made for another base model" if key == FINGERPRINT_KEY else ""
            raise AdapterRejected(f"{path} says {key} = {found!r}, but {value!r} is needed{hint}.")
    alpha_field = reader.get_field(ALPHA_KEY)
    alpha: object = alpha_field.contents() if alpha_field is not None else None
    if not isinstance(alpha, float) or not np.isfinite(alpha) or alpha <= 0:
        raise AdapterRejected(f"{path} says {ALPHA_KEY} = {alpha!r}, but a positive number is needed.")


def _check_names(path: Path, found: set[str], expected: set[str]) -> None:
    missing, unknown = sorted(expected - found), sorted(found - expected)
    if missing or unknown:
        parts = [f"{len(missing)} tensors are missing, first {missing[0]}"] if missing else []
        parts += [f"{len(unknown)} are unknown, first {unknown[0]}"] if unknown else []
        raise AdapterRejected(f"{path} doesn't fit the base model: {'; '.join(parts)}.")


def _check_shapes(
    path: Path, name: str, a: gguf.ReaderTensor, b: gguf.ReaderTensor, out_features: int, in_features: int
) -> int:
    """The rank that both factors agree on."""
    for tensor in (a, b):
        if tensor.tensor_type not in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
            raise AdapterRejected(f"{path}: {tensor.name} is {tensor.tensor_type.name}; F16 or F32 is needed.")
    rank = int(a.data.shape[0])
    if a.data.shape != (rank, in_features) or b.data.shape != (out_features, rank):
        raise AdapterRejected(
            f"{path}: {name} is ({out_features}, {in_features}), but its factors are {b.data.shape} and {a.data.shape}."
        )
    return rank


def _check_finite(path: Path, tensor: gguf.ReaderTensor) -> None:
    if not np.isfinite(tensor.data).all():
        raise AdapterRejected(f"{path}: {tensor.name} holds numbers that aren't finite (NaN or infinite).")


def _architecture_enum(name: str) -> gguf.MODEL_ARCH:
    return next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
