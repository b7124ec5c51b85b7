"""What a model file says about itself, read through llama.cpp from an open model (vocabulary-only will do).

gguf's own reader is not used: it builds a Python object per vocabulary entry.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from clawd.model.llama import llama


@dataclass(frozen=True)
class ModelInfo:
    path: Path
    name: str  # `general.name`; the file's stem if it has none
    architecture: str
    n_params: int
    trained_context: int  # tokens
    vocab_size: int  # V
    n_embd: int
    n_layers: int
    chat_template: str | None  # Jinja source; none: the file has none
    bos: str  # text of the token, "" if the model has none
    eos: str
    file_size: int  # bytes


def read_info(model: int, path: Path) -> ModelInfo:
    """Metadata of the open `model` (llama.cpp's pointer) that was loaded from `path`."""
    vocab = llama.llama_model_get_vocab(model)
    architecture = _value(model, "general.architecture") or "unknown"

    def number(key: str) -> int:
        # From the metadata, as a vocabulary-only model leaves llama.cpp's own figures at zero.
        return int(_value(model, f"{architecture}.{key}") or 0)

    return ModelInfo(
        path=path,
        name=_value(model, "general.name") or path.stem,
        architecture=architecture,
        n_params=llama.llama_model_n_params(model),
        trained_context=number("context_length"),
        vocab_size=llama.llama_vocab_n_tokens(vocab),
        n_embd=number("embedding_length"),
        n_layers=number("block_count"),
        chat_template=_value(model, "tokenizer.chat_template"),
        bos=_text(vocab, llama.llama_vocab_bos(vocab)),
        eos=_text(vocab, llama.llama_vocab_eos(vocab)),
        file_size=path.stat().st_size,
    )


def _value(model: int, key: str) -> str | None:
    """A metadata value as text; none if the file has no such key."""
    size = llama.llama_model_meta_val_str(model, key.encode(), None, 0)
    if size < 0:
        return None
    buffer = ctypes.create_string_buffer(size + 1)
    llama.llama_model_meta_val_str(model, key.encode(), buffer, size + 1)
    return buffer.value.decode("utf-8", "replace")


def _text(vocab: int, token: int) -> str:
    if token < 0:
        return ""
    text = llama.llama_vocab_get_text(vocab, token)
    return text.decode("utf-8", "replace") if text else ""
