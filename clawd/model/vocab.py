"""Text to token ids and back, exactly as llama.cpp does it for the served file.

`Vocabulary` works over the model that the engine has loaded, or over a file opened without its weights. It is safe to
use from several threads.
"""

from __future__ import annotations

import codecs
import ctypes
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from clawd.errors import ModelError
from clawd.model.control import ControlTexts
from clawd.model.info import ModelInfo, read_info
from clawd.model.llama import complaints, llama


class Vocabulary:
    """The tokenizer of one model. Use `Vocabulary.open(path)` as a context manager, or `close` it."""

    def __init__(self, model: int, path: Path, *, owns_model: bool = False) -> None:
        self._model: int | None = model
        self._owns_model = owns_model
        self._vocab = llama.llama_model_get_vocab(model)
        self.info: ModelInfo = read_info(model, path)
        self.size: int = self.info.vocab_size
        self.bos_id: int | None = _known(llama.llama_vocab_bos(self._vocab))
        self.eos_id: int | None = _known(llama.llama_vocab_eos(self._vocab))
        self.adds_bos: bool = llama.llama_vocab_get_add_bos(self._vocab) and self.bos_id is not None
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def open(cls, path: Path) -> Vocabulary:
        """Open `path` without its weights.

        Raises:
            ModelError: missing, damaged, or not a GGUF model.
        """
        return cls(load_model(path, vocab_only=True), path, owns_model=True)

    def close(self) -> None:
        if self._owns_model and self._model is not None:
            llama.llama_model_free(self._model)
        self._model = None

    def __enter__(self) -> Vocabulary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def tokenise(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Ids of `text`, without BOS or EOS. `parse_special`: `<|im_end|>` and the like become their control tokens."""
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        while True:
            ids = (llama.llama_token * room)()
            count = llama.llama_tokenize(self._vocab, data, len(data), ids, room, False, parse_special)
            if count >= 0:
                return list(ids[:count])
            room = -count

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """UTF-8 bytes of one token, possibly part of a character. Control tokens are b"" unless `special`."""
        if special:
            return self._piece(token, special=True)
        piece = self._bytes.get(token)
        if piece is None:
            piece = self._bytes[token] = self._piece(token, special=False)
        return piece

    def text(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """Text of a whole sequence; bytes that form no character become U+FFFD."""
        return b"".join(self.token_bytes(token, special=special) for token in tokens).decode("utf-8", "replace")

    def control_texts(self) -> ControlTexts:
        """What `parse_special` finds and a plain text must not. Looks at every token: keep the result."""
        texts, left, right = [], [], []
        for token in range(self.size):
            attributes = llama.llama_vocab_get_attr(self._vocab, token)
            if attributes & (llama.LLAMA_TOKEN_ATTR_CONTROL | llama.LLAMA_TOKEN_ATTR_UNKNOWN):
                text = llama.llama_vocab_get_text(self._vocab, token).decode("utf-8", "replace")
                texts.append(text)
                left += [text] if attributes & llama.LLAMA_TOKEN_ATTR_LSTRIP else []
                right += [text] if attributes & llama.LLAMA_TOKEN_ATTR_RSTRIP else []
        return ControlTexts(texts, left, right)

    def is_end(self, token: int) -> bool:
        """Whether the model ends its turn with this token."""
        return bool(llama.llama_vocab_is_eog(self._vocab, token))

    def _piece(self, token: int, *, special: bool) -> bytes:
        if not 0 <= token < self.size:
            raise ModelError(f"Token {token} is outside of the vocabulary of {self.size} entries.")
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = llama.llama_token_to_piece(self._vocab, token, buffer, room, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            room = -count


class TextDecoder:
    """Bytes in, text out, holding back the bytes of an unfinished character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is still held back, as U+FFFD."""
        return self._decoder.decode(b"", final=True)


def load_model(path: Path, *, vocab_only: bool = False, use_extra_bufts: bool = True, gpu_layers: int = -1) -> int:
    """Open a GGUF file; returns llama.cpp's pointer, to be freed with `llama_model_free`.

    Raises:
        ModelError: missing, damaged, or of a kind that llama.cpp doesn't know; the text holds its reason.
    """
    if not path.is_file():
        raise ModelError(f"There is no model file {path}: correct model.path.")
    params = llama.llama_model_default_params()
    params.vocab_only = vocab_only
    params.use_extra_bufts = use_extra_bufts
    params.n_gpu_layers = gpu_layers
    with complaints() as reasons:
        model = llama.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        reason = "; ".join(reasons) or "llama.cpp gives no reason"
        raise ModelError(f"The model file {path} can't be loaded ({reason}). Get the file again or serve another.")
    return int(model)


def _known(token: int) -> int | None:
    return token if token >= 0 else None
