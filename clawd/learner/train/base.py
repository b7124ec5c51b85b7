"""The trainer's base: the served GGUF's own weights, dense.

Guarantees that what is trained on is what is served, up to the rounding of `dtype`. The dense form is kept in the cache
folder under the base's fingerprint, because dequantising takes many times longer than reading; it appears whole by
rename, and a damaged one is noticed by its hash and made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import struct
from pathlib import Path
from typing import Literal, cast

import torch
from filelock import FileLock
from transformers import AutoModelForCausalLM, GgufConfig, PreTrainedModel

from clawd.errors import ModelError
from clawd.learner.budget import Kind
from clawd.learner.train import attention, packed
from clawd.learner.train.gated import use_lean_gates
from clawd.learner.train.machine import processor_flags, processor_format
from clawd.learner.train.norm import use_lean_norms

log = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
SEAL = "seal.json"  # the hashes of both


def training_dtype(setting: Literal["auto", "bfloat16", "float32"], kind: Kind = "cpu") -> torch.dtype:
    """The base's number format on a device; `auto`: bfloat16 where it is multiplied natively."""
    if kind == "cuda" and setting == "auto":
        setting = "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    return torch.bfloat16 if processor_format(setting) == "bfloat16" else torch.float32


def matmul_precision(dtype: torch.dtype, flags: set[str] | None = None) -> Literal["medium", "highest"]:
    """How float32 matrices are multiplied beside a base of `dtype`: `medium` is oneDNN's way, `highest` MKL's.

    Beside a bfloat16 base the operands of the output head are bfloat16 numbers already: `medium`, which may round them
    to that, changes nothing but the time. Beside a float32 base it must not round. With AVX-512 and without AMX oneDNN
    doesn't, and on AMD's processors it is twice as fast as MKL (`docs/results.md`).
    """
    if dtype == torch.bfloat16:
        return "medium"
    flags = processor_flags() if flags is None else flags
    return "medium" if "avx512f" in flags and "amx_bf16" not in flags else "highest"


def load_base(
    gguf: Path,
    fingerprint: str,
    cache: Path,
    dtype: torch.dtype,
    device: str = "cpu",
    quantise: Literal["none", "nf4"] = "none",
) -> PreTrainedModel:
    """The base, frozen, in `dtype` on `device`; from the cache if it is there and whole, its blocks packed if asked.

    Raises:
        MissingExtra: what packs them isn't installed.
        ModelError: the file can't be read, or is of an architecture that transformers can't load from GGUF.
    """
    if quantise == "nf4":
        packed.require()
    folder = prepare(gguf, fingerprint, cache, dtype)
    attention.register()
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation=attention.NAME, local_files_only=True
    )
    model.requires_grad_(False)
    use_lean_norms(model)
    use_lean_gates(model)
    if quantise == "nf4":
        packed.pack_layers(model.model.layers, torch.device(device))
        for rest in model.parameters():
            rest.data = rest.data.clone()  # or the whole file would stay mapped for their sake
    return cast(PreTrainedModel, model.to(device).eval())


def prepare(gguf: Path, fingerprint: str, cache: Path, dtype: torch.dtype) -> Path:
    """The folder of the dense form, which is made if it isn't there and whole. One process makes it, others wait.

    Raises:
        ModelError: as `load_base`.
    """
    folder = cache / f"dense-{dense_name(fingerprint, dtype)}"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        for leftover in folder.parent.glob(f".{folder.name}.*/"):  # of a process that was killed at it
            shutil.rmtree(leftover)
        if not _is_whole(folder):
            _build(gguf, folder, dtype)
    return folder


def dense_name(fingerprint: str, dtype: torch.dtype) -> str:
    """Tells one base in one number format from any other."""
    return f"{fingerprint[:32]}-{str(dtype).removeprefix('torch.')}"


def _is_whole(folder: Path) -> bool:
    if not folder.exists():
        return False
    try:
        seal = json.loads((folder / SEAL).read_text())
        whole = {name: _sha256(folder / name) for name in seal} == seal and WEIGHTS in seal
    except (OSError, ValueError, AttributeError):
        whole = False
    if not whole:
        log.warning("the dense base in %s is damaged; it is made again", folder)
    return whole


def _build(gguf: Path, folder: Path, dtype: torch.dtype) -> None:
    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        _dense(gguf, aside, dtype).save_pretrained(aside, max_shard_size="1000GB")
        seal = {name: _sha256(aside / name) for name in (WEIGHTS, CONFIG)}
        (aside / SEAL).write_text(json.dumps(seal))
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _dense(gguf: Path, folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    # Through a link in an empty folder: transformers takes up what lies beside the file, such as an adapter.
    link = folder / "base.gguf"
    link.symlink_to(gguf.absolute())
    try:
        # Without `dequantize` the weights stay packed and every multiplication unpacks them again.
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            gguf_file=link.name,
            quantization_config=GgufConfig(dequantize=True),
            local_files_only=True,
            dtype=dtype,
        )
    except (OSError, ValueError, KeyError, RuntimeError, struct.error) as error:
        raise ModelError(f"{gguf} can't be loaded for training: {error}") from error
    finally:
        link.unlink()
    return cast(PreTrainedModel, model)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
