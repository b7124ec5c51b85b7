"""The dimensions of a model, from the head of its GGUF file: milliseconds, no tensor data, no llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clawd.errors import ModelError
from clawd.model.gguf_header import read_header

EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"


@dataclass(frozen=True)
class ModelShape:
    """Of a decoder with grouped-query attention and a gated MLP."""

    hidden: int  # H
    layers: int
    heads: int  # of queries
    kv_heads: int
    head_size: int  # D
    inner: int  # of the MLP
    vocabulary: int  # V
    tied: bool  # the output head is the embedding
    head_norms: bool = False  # queries and keys are normalised head by head

    @property
    def linears(self) -> Mapping[str, tuple[int, int]]:
        """(out, in) of the linear layers of one block."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "attn_q": (queries, self.hidden),
            "attn_k": (keys, self.hidden),
            "attn_v": (keys, self.hidden),
            "attn_output": (self.hidden, queries),
            "ffn_gate": (self.inner, self.hidden),
            "ffn_up": (self.inner, self.hidden),
            "ffn_down": (self.hidden, self.inner),
        }


def read_shape(path: Path) -> ModelShape:
    """Raises: ModelError: the file is damaged, or of a model that isn't built of such blocks."""
    header = read_header(path)
    architecture = header.text("general.architecture")
    heads = header.integer(f"{architecture}.attention.head_count")
    try:
        vocabulary, hidden = header.tensors[EMBEDDING]
        queries, keys, gate = (header.tensors[f"blk.0.{name}.weight"][0] for name in ("attn_q", "attn_k", "ffn_gate"))
    except KeyError as error:
        raise ModelError(f"{path.name} has no tensor {error}: its memory can't be computed.") from None
    size = queries // heads
    return ModelShape(
        hidden=hidden,
        layers=header.integer(f"{architecture}.block_count"),
        heads=heads,
        kv_heads=keys // size,
        head_size=size,
        inner=gate,
        vocabulary=vocabulary,
        tied=OUTPUT not in header.tensors,
        head_norms="blk.0.attn_q_norm.weight" in header.tensors,
    )
