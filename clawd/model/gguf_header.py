"""The head of a GGUF file: its scalars and the shapes of its tensors, read in milliseconds.

Guarantees not to read tensor data nor to keep arrays such as the vocabulary, so that light processes can ask for shapes
(the `gguf` package builds one object per vocabulary entry, which takes seconds). Format: ggml's `docs/gguf.md`,
versions 2 and 3, little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from clawd.errors import ModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q", 12: "<d"}
LONGEST_STRING = 1 << 24  # a chat template has kilobytes; a damaged length must not be allocated
LARGEST_COUNT = 1 << 20
MAX_DIMENSIONS = 4

Scalar = str | int | float | bool


@dataclass(frozen=True)
class GgufHeader:
    """`tensors` maps a name to its dimensions as HF writes them, rows first: a linear layer has (out, in)."""

    scalars: dict[str, Scalar]
    tensors: dict[str, tuple[int, ...]]

    def text(self, key: str) -> str:
        return str(self._required(key))

    def integer(self, key: str) -> int:
        return int(self._required(key))

    def _required(self, key: str) -> Scalar:
        if key not in self.scalars:
            raise ModelError(f"The model file has no `{key}` among its metadata.")
        return self.scalars[key]


def read_header(path: Path) -> GgufHeader:
    """Raises: ModelError: no such file, not a GGUF file, of an unknown version, or its head is damaged."""
    try:
        with path.open("rb") as file:
            return _parse(file)
    except (OSError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise ModelError(f"{path} is not a readable GGUF file: {error}") from error


def _parse(file: BinaryIO) -> GgufHeader:
    magic = file.read(4)
    if magic != MAGIC:
        raise ValueError(f"it begins with {magic!r}, not {MAGIC!r}" if magic else "it is empty")
    version = _number(file, "<I")
    if version not in VERSIONS:
        raise ValueError(f"version {version} is not one of {VERSIONS}")
    tensor_count, scalar_count = _count(file), _count(file)
    scalars: dict[str, Scalar] = {}
    for _ in range(scalar_count):
        name = _string(file)
        value = _value(file, int(_number(file, "<I")))
        if value is not None:
            scalars[name] = value
    return GgufHeader(scalars, dict(_tensor(file) for _ in range(tensor_count)))


def _value(file: BinaryIO, kind: int) -> Scalar | None:
    """One metadata value; None for an array, which is passed over."""
    if kind == STRING:
        return _string(file)
    if kind == ARRAY:
        _pass_over_array(file)
        return None
    if kind not in SCALARS:
        raise ValueError(f"unknown value type {kind}")
    return _number(file, SCALARS[kind])


def _pass_over_array(file: BinaryIO) -> None:
    kind, length = int(_number(file, "<I")), int(_number(file, "<Q"))
    if kind == STRING:
        for _ in range(length):
            file.seek(_length(file), 1)
    elif kind in SCALARS:
        file.seek(length * struct.calcsize(SCALARS[kind]), 1)
    else:
        raise ValueError(f"an array of value type {kind}")


def _tensor(file: BinaryIO) -> tuple[str, tuple[int, ...]]:
    name = _string(file)
    dimensions = int(_number(file, "<I"))
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise ValueError(f"tensor {name!r} has {dimensions} dimensions")
    fastest_first = [int(_number(file, "<Q")) for _ in range(dimensions)]
    file.seek(4 + 8, 1)  # number format, offset
    return name, tuple(reversed(fastest_first))


def _number(file: BinaryIO, form: str) -> int | float | bool:
    (value,) = struct.unpack(form, file.read(struct.calcsize(form)))
    return value  # type: ignore[no-any-return]  # struct knows no types


def _count(file: BinaryIO) -> int:
    count = int(_number(file, "<Q"))
    if count > LARGEST_COUNT:
        raise ValueError(f"a count of {count}")
    return count


def _length(file: BinaryIO) -> int:
    length = int(_number(file, "<Q"))
    if length > LONGEST_STRING:
        raise ValueError(f"a string of {length} bytes")
    return length


def _string(file: BinaryIO) -> str:
    length = _length(file)
    data = file.read(length)
    if len(data) < length:
        raise ValueError("it ends in the middle of a string")
    return data.decode()
