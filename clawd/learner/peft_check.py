"""Whether PEFT's form of an adapter says the same as its GGUF: what would be trained on is what is served.

Loads numpy and gguf, no torch. Safetensors holds numbers and nothing else; the configuration is read as JSON, and only
its rank and scale are believed.
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from clawd.errors import AdapterRejected, ModelError
from clawd.learner.job import ADAPTER_GGUF, PEFT_CONFIG, PEFT_WEIGHTS
from clawd.model.lora import ALPHA_KEY, LoraBase, permute_rows, rotary_heads

PREFIX = "base_model.model."
FACTORS = {"lora_A": "lora_a", "lora_B": "lora_b"}
HALF_PRECISION = 2.0**-10  # relative; the GGUF holds float16
SMALLEST_HALF = 2.0**-24


def check_peft(folder: Path, base: LoraBase) -> None:
    """For a folder whose GGUF has been checked. Raises AdapterRejected: names what differs."""
    config, weights = _read(folder)
    reader = gguf.GGUFReader(folder / ADAPTER_GGUF)
    served = {tensor.name: tensor for tensor in reader.tensors}
    _check_config(folder, config, reader, next(t for name, t in served.items() if name.endswith("lora_a")))
    expected = {name: f"{tensor}.{factor}" for name, tensor, factor in _layers(weights, base, folder)}
    if set(expected.values()) != set(served):
        raise AdapterRejected(f"{folder / PEFT_WEIGHTS} has other layers than {ADAPTER_GGUF}.")
    for name, tensor_name in expected.items():
        mine = weights[name].astype(np.float32)
        if tensor_name.endswith("lora_b"):
            mine = permute_rows(mine, rotary_heads(base, tensor_name.removesuffix(".lora_b")))
        if not _agree(mine, np.asarray(served[tensor_name].data, dtype=np.float32)):
            raise AdapterRejected(f"{folder / PEFT_WEIGHTS}: {name} is not what {ADAPTER_GGUF} holds as {tensor_name}.")


def _read(folder: Path) -> tuple[dict[str, object], dict[str, NDArray[np.floating]]]:
    try:
        config = json.loads((folder / PEFT_CONFIG).read_text())
        weights = load_file(folder / PEFT_WEIGHTS)
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise AdapterRejected(f"{folder / PEFT_WEIGHTS} or {PEFT_CONFIG} can't be read: {error}.") from None
    if not isinstance(config, dict):
        raise AdapterRejected(f"{folder / PEFT_CONFIG} is no JSON object.")
    return config, weights


def _check_config(folder: Path, config: dict[str, object], reader: gguf.GGUFReader, a: gguf.ReaderTensor) -> None:
    field = reader.get_field(ALPHA_KEY)
    alpha = field.contents() if field is not None else None
    rank = int(a.data.shape[0])
    if config.get("lora_alpha") != alpha or config.get("r") != rank:
        raise AdapterRejected(
            f"{folder / PEFT_CONFIG} says rank {config.get('r')} and scale {config.get('lora_alpha')}, "
            f"but {ADAPTER_GGUF} has {rank} and {alpha}."
        )


def _layers(weights: dict[str, NDArray[np.floating]], base: LoraBase, folder: Path) -> list[tuple[str, str, str]]:
    """(PEFT's name, base tensor, factor) of each tensor."""
    split: list[tuple[str, str, str]] = []
    for name in weights:
        module, _, factor = name.removesuffix(".weight").removeprefix(PREFIX).rpartition(".")
        if factor not in FACTORS:
            raise AdapterRejected(f"{folder / PEFT_WEIGHTS} holds {name}, which is no factor of a LoRA.")
        split.append((name, module, FACTORS[factor]))
    try:
        tensors = base.tensor_names({module for _, module, _ in split})
    except ModelError as error:
        raise AdapterRejected(f"{folder / PEFT_WEIGHTS} doesn't fit the base model: {error}") from None
    return [(name, tensors[module], factor) for name, module, factor in split]


def _agree(peft: NDArray[np.floating], served: NDArray[np.floating]) -> bool:
    if peft.shape != served.shape or not np.isfinite(peft).all():
        return False
    return bool(np.allclose(peft, served, rtol=HALF_PRECISION, atol=SMALLEST_HALF))
