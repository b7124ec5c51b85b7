"""A LoRA worked into its base: a GGUF file that any llama.cpp serves, without an adapter.

The changed matrices are written as float16: quantised again as coarsely as they were, the rounding would be of the size
of the change. All others, and all metadata, are copied as they stand. Loads numpy and gguf, no llama.cpp.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from clawd.errors import AdapterRejected, ModelError
from clawd.model.lora import ALPHA_KEY, LoraBase, check_adapter_file

ADAPTER_KEY = "clawd.merged.adapter"
BASE_KEY = "clawd.merged.base.sha256"
FILE_TYPE_KEY = "general.file_type"
WRITERS_OWN = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", FILE_TYPE_KEY}
"""Fields that the writer makes itself, or that no longer hold."""


def merge(model: Path, base: LoraBase, adapter: Path, target: Path, name: str) -> None:
    """Write `model` with `adapter` (called `name`) worked in as `target`, one matrix at a time in memory.

    Raises:
        AdapterRejected: the adapter isn't whole or not for this base.
        ModelError: a matrix is of a type that can't be read.
    """
    check_adapter_file(adapter, base)
    reader = gguf.GGUFReader(model)
    lora = gguf.GGUFReader(adapter)
    factors = {tensor.name: np.asarray(tensor.data, dtype=np.float32) for tensor in lora.tensors}
    scale = _scale(lora, factors)
    writer = gguf.GGUFWriter(target, base.architecture)
    try:
        _copy_metadata(reader, writer)
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
        writer.add_string(ADAPTER_KEY, name)
        writer.add_string(BASE_KEY, base.fingerprint)
        for tensor in reader.tensors:
            _announce(writer, tensor, changed=tensor.name in base.linears)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in reader.tensors:
            if tensor.name in base.linears:
                a, b = (factors[f"{tensor.name}.{factor}"] for factor in ("lora_a", "lora_b"))
                writer.write_tensor_data(_merged(tensor, a, b, scale))
            else:
                writer.write_tensor_data(tensor.data)
    finally:
        writer.close()


def _scale(lora: gguf.GGUFReader, factors: dict[str, NDArray[np.float32]]) -> float:
    field = lora.get_field(ALPHA_KEY)
    assert field is not None, "`check_adapter_file` has seen it"
    rank = next(array.shape[0] for name, array in factors.items() if name.endswith("lora_a"))
    return float(field.contents()) / float(rank)


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for field in reader.fields.values():
        if field.name in WRITERS_OWN:
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=element)
        if field.name == "general.alignment":
            writer.data_alignment = field.contents()


def _announce(writer: gguf.GGUFWriter, tensor: gguf.ReaderTensor, *, changed: bool) -> None:
    """Say what will stand in the file. A reader tells a tensor's shape the other way round than a writer takes it."""
    if changed:
        shape = [int(size) for size in reversed(tensor.shape)]
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float16), int(np.prod(shape)) * 2)
    else:
        writer.add_tensor_info(
            tensor.name, tensor.data.shape, tensor.data.dtype, tensor.data.nbytes, tensor.tensor_type
        )


def _merged(
    tensor: gguf.ReaderTensor, a: NDArray[np.float32], b: NDArray[np.float32], scale: float
) -> NDArray[np.float16]:
    """W + scale B A, in GGUF's order of rows, in which `b` is too."""
    try:
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise ModelError(f"{tensor.name} is {tensor.tensor_type.name}, which can't be read: {error}.") from None
    total = weight.reshape(b.shape[0], a.shape[1]) + scale * (b @ a)
    with np.errstate(over="ignore"):  # told below
        merged: NDArray[np.float16] = total.astype(np.float16)
    if not np.isfinite(merged).all():
        raise AdapterRejected(f"{tensor.name} would leave the range of float16: this adapter can't be merged.")
    return merged
