"""A tiny random model and random adapters in GGUF form: real files for the real engine, small enough for fast tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # ids 0, 1, 2
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ t", "t h", "th e", "i n", "e r", "a n"]


@dataclass(frozen=True)
class Shape:
    """Dimensions of a llama model."""

    n_layers: int
    n_embd: int
    n_heads: int
    n_kv_heads: int
    n_ff: int

    @property
    def linear(self) -> dict[str, tuple[int, int]]:
        """(out, in) of the linear layers of a block, by GGUF name."""
        kv = self.n_embd // self.n_heads * self.n_kv_heads
        return {
            "attn_q": (self.n_embd, self.n_embd),
            "attn_k": (kv, self.n_embd),
            "attn_v": (kv, self.n_embd),
            "attn_output": (self.n_embd, self.n_embd),
            "ffn_gate": (self.n_ff, self.n_embd),
            "ffn_up": (self.n_ff, self.n_embd),
            "ffn_down": (self.n_embd, self.n_ff),
        }


TINY = Shape(n_layers=2, n_embd=64, n_heads=4, n_kv_heads=2, n_ff=128)
SMOLLM2 = Shape(n_layers=30, n_embd=576, n_heads=9, n_kv_heads=3, n_ff=1536)


def byte_characters() -> list[str]:
    """The 256 characters that stand for bytes in byte-level BPE, by byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(extra)) for byte in range(256)]


def write_tiny_model(
    path: Path, *, context: int = 512, seed: int = 0, template: str = CHATML, control: Sequence[str] = ()
) -> Path:
    """A llama model of two random layers with a byte-level vocabulary of 269 tokens; `control`: more of that kind."""
    random = np.random.default_rng(seed)
    tokens = [*SPECIAL, *byte_characters(), *(merge.replace(" ", "") for merge in MERGES), *control]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_context_length(context)
    writer.add_embedding_length(TINY.n_embd)
    writer.add_block_count(TINY.n_layers)
    writer.add_feed_forward_length(TINY.n_ff)
    writer.add_head_count(TINY.n_heads)
    writer.add_head_count_kv(TINY.n_kv_heads)
    writer.add_rope_dimension_count(TINY.n_embd // TINY.n_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    plain = len(tokens) - len(SPECIAL) - len(control)
    writer.add_token_types([3] * len(SPECIAL) + [1] * plain + [3] * len(control))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)

    def add(name: str, shape: tuple[int, ...], scale: float) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * scale).astype(np.float32))

    add("token_embd.weight", (len(tokens), TINY.n_embd), 1.0)
    output = (random.standard_normal((len(tokens), TINY.n_embd))).astype(np.float32)
    output[[0, 2]] = 0  # end tokens as good as never come: an answer is as long as it was asked to be
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", np.ones(TINY.n_embd, np.float32))
    for block in range(TINY.n_layers):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{block}.{norm}.weight", np.ones(TINY.n_embd, np.float32))
        for name, (out, into) in TINY.linear.items():
            add(f"blk.{block}.{name}.weight", (out, into), 1.0 / into**0.5)
    return _finish(writer, path)


def write_random_lora(path: Path, shape: Shape, *, seed: int, strength: float = 1.0, rank: int = 4) -> Path:
    """A LoRA on every linear layer. `strength` 1 changes most greedy answers."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for block in range(shape.n_layers):
        for name, (out, into) in shape.linear.items():
            a = random.standard_normal((rank, into)) / into**0.5
            b = random.standard_normal((out, rank)) * strength * 0.3 / rank**0.5
            writer.add_tensor(f"blk.{block}.{name}.weight.lora_a", a.astype(np.float32))
            writer.add_tensor(f"blk.{block}.{name}.weight.lora_b", b.astype(np.float32))
    return _finish(writer, path)


def _finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
