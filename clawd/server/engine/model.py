"""The served model: its weights, its context with the key-value cells, and one decoding call.

Not safe for several threads: after loading, only the engine's thread touches the context. Weights are mapped from the
file, so that processes which serve the same file share them.
"""

from __future__ import annotations

import ctypes
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from clawd.config import ModelSettings, ServerSettings
from clawd.errors import EngineStopped, ModelError
from clawd.model.llama import complaints, llama
from clawd.model.vocab import Vocabulary, load_model
from clawd.server.engine.batch import Batch
from clawd.server.engine.interrupting import Interruption
from clawd.server.engine.pages import zeros_given_back
from clawd.server.engine.saved import State
from clawd.server.engine.scheduler import Copy, Limits, Remove, Row

logger = logging.getLogger(__name__)

KV_TYPES = {"f16": llama.GGML_TYPE_F16, "q8_0": llama.GGML_TYPE_Q8_0}
MAX_SEQUENCES = 256  # llama.cpp's own bound
NO_CELL, BROKEN_OFF = 1, 2  # statuses of llama_decode
CHUNK_ON_CPU = 64
CHUNK_ON_GPU = 512


@dataclass(frozen=True)
class ContextShape:
    """What the context is made for."""

    context: int  # longest conversation, tokens
    cells: int
    sequences: int
    rows: int  # tokens per step
    outputs: int  # rows with logits per step
    kv_type: str
    threads: int


class LoadedModel:
    """Weights and context. `close` frees both; use it as long as no engine thread runs on it."""

    def __init__(
        self, path: Path, shape: ContextShape, *, prompt_chunk: int, gpu_layers: int, use_extra_bufts: bool
    ) -> None:
        self.path = path
        self.prompt_chunk = prompt_chunk
        self._model = load_model(path, use_extra_bufts=use_extra_bufts, gpu_layers=gpu_layers)
        try:
            self.vocabulary = Vocabulary(self._model, path)
            self.shape, self._context = _create_context(self._model, shape, self.vocabulary)
        except BaseException:
            llama.llama_model_free(self._model)
            raise
        self._memory = llama.llama_get_memory(self._context)
        self.interruption = Interruption(self._context)
        self._batch = Batch(self.shape.rows)
        self._companion = self.shape.sequences  # a sequence that the scheduler doesn't know of
        self._logit_rows: dict[int, NDArray[np.float32]] = {}  # views by address: making one costs more than a look-up
        self.can_trim = False
        self.can_trim = self._probe_trimming()

    @classmethod
    def load(
        cls, path: Path, settings: ModelSettings, server: ServerSettings, *, use_extra_bufts: bool = True
    ) -> LoadedModel:
        """Load `path` as the settings say. `use_extra_bufts` comes from the binding's probe.

        Raises:
            ModelError: the file can't be served; nothing stays loaded.
        """
        shape = ContextShape(
            context=settings.context or 0,
            cells=settings.kv_cells or 0,
            sequences=min(server.max_running + server.remembered, MAX_SEQUENCES - 1),
            rows=max(prompt_chunk(settings, server), server.prompt_chunk_shared) + server.max_running,
            outputs=server.max_running,
            kv_type=settings.kv_type,
            threads=settings.threads or psutil.cpu_count(logical=False) or 1,
        )
        return cls(
            path,
            shape,
            prompt_chunk=prompt_chunk(settings, server),
            gpu_layers=settings.gpu_layers,
            use_extra_bufts=use_extra_bufts,
        )

    @property
    def handle(self) -> int:
        """llama.cpp's pointer to the model."""
        return self._model

    @property
    def context_handle(self) -> int:
        """llama.cpp's pointer to the context."""
        return self._context

    def limits(self, server: ServerSettings) -> Limits:
        """What the scheduler may plan with on this model."""
        return Limits(
            cells=self.shape.cells,
            sequences=self.shape.sequences,
            max_running=server.max_running,
            remembered=min(server.remembered, self.shape.sequences - server.max_running),
            prompt_chunk=self.prompt_chunk,
            prompt_chunk_shared=server.prompt_chunk_shared,
            adapter_slice=server.adapter_slice,
            can_trim=self.can_trim,
        )

    def apply(self, operations: tuple[Remove | Copy, ...]) -> None:
        """Carry out the cache operations of a plan, in order."""
        for operation in operations:
            if isinstance(operation, Copy):
                length = operation.length if self.can_trim else -1
                llama.llama_memory_seq_cp(self._memory, operation.source, operation.target, 0, length)
            elif not llama.llama_memory_seq_rm(self._memory, operation.sequence, operation.start, -1):
                raise EngineStopped(f"The model's memory refuses to drop positions from {operation.start} on.")

    def decode(self, rows: tuple[Row, ...]) -> list[tuple[Row, NDArray[np.float32]]]:
        """Compute `rows`; returns those that sample with their logits (V,), valid until the next call.

        Raises:
            EngineStopped: llama.cpp failed; the state of the cells is unknown.
        """
        logits = self.try_decode(rows, interruptible=False)
        assert logits is not None
        return logits

    def try_decode(
        self, rows: tuple[Row, ...], *, interruptible: bool, repeatable: bool = False
    ) -> list[tuple[Row, NDArray[np.float32]]] | None:
        """As `decode`. None: `interruption` broke it off, and the cells are as before it.

        `repeatable`: a single token gives the same logits wherever its sequence's cells lie. llama.cpp reads the cells
        of a batch of one in as many parts as there are threads, so that its sums depend on how many cells are in use;
        those of two or more it reads from end to end. So the token gets a companion, and takes a third longer.
        """
        alone = repeatable and self.can_trim and len(rows) == 1 and len(rows[0].tokens) == 1
        samples = self._batch.fill(rows, self._companion if alone else None)
        # Dropping the end of a sequence is how llama.cpp takes a step back.
        with complaints(quiet=True) as reasons, self.interruption.armed(interruptible and self.can_trim):
            status = llama.llama_decode(self._context, self._batch.native)
        if alone:
            llama.llama_memory_seq_rm(self._memory, self._companion, -1, -1)
            if status == NO_CELL:  # every last one is in use: the answer goes on without its companion
                return self.try_decode(rows, interruptible=interruptible)
        if status == BROKEN_OFF:
            return None
        for reason in reasons:
            logger.warning("%s", reason)
        if status != 0:
            raise EngineStopped(f"llama.cpp failed to decode (status {status}: {'; '.join(reasons) or 'no reason'}).")
        return [(row, self._logits(index)) for row, index in samples]

    def state_size(self, sequence: int) -> int:
        """Bytes of the key-value state of a sequence."""
        return int(llama.llama_state_seq_get_size(self._context, sequence))

    def state(self, sequence: int) -> State:
        """The key-value state of a sequence, for `fill` in this context or another like it."""
        data = np.empty(self.state_size(sequence), np.uint8)
        written = llama.llama_state_seq_get_data(self._context, _bytes(data), len(data), sequence)
        return data[:written]

    def fill(self, sequence: int, state: State) -> str | None:
        """Give an empty sequence a state; None: done, else why llama.cpp refuses it: the sequence is still empty."""
        with complaints() as reasons:
            read = llama.llama_state_seq_set_data(self._context, _bytes(state), len(state), sequence)
        if read == len(state):
            return None
        llama.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return "; ".join(reasons) or "llama.cpp gives no reason"

    def close(self) -> None:
        self._batch.close()
        llama.llama_free(self._context)
        self.vocabulary.close()
        llama.llama_model_free(self._model)

    def _logits(self, index: int) -> NDArray[np.float32]:
        pointer = llama.llama_get_logits_ith(self._context, index)
        if not pointer:
            raise EngineStopped(f"llama.cpp has no logits for row {index}.")
        address = ctypes.addressof(pointer.contents)
        row = self._logit_rows.get(address)
        if row is None:
            row = np.ctypeslib.as_array(pointer, (self.vocabulary.size,))
            self._logit_rows[address] = row
        return row

    def _probe_trimming(self) -> bool:
        """Whether the memory can drop the end of a sequence; recurrent ones can't. No flag says it for all: tried."""
        tokens = np.zeros(2, np.int32)
        self.decode((Row("", 0, tokens, 0, samples=False),))
        can_trim = bool(llama.llama_memory_seq_rm(self._memory, 0, 1, -1))
        llama.llama_memory_clear(self._memory, False)  # clearing the data would make every page resident
        return can_trim


def prompt_chunk(settings: ModelSettings, server: ServerSettings) -> int:
    """Prompt tokens per step as set, or as suits what computes."""
    on_gpu = settings.gpu_layers != 0 and bool(llama.llama_supports_gpu_offload())
    return server.prompt_chunk or (CHUNK_ON_GPU if on_gpu else CHUNK_ON_CPU)


def _bytes(data: State) -> Any:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _create_context(model: int, shape: ContextShape, vocabulary: Vocabulary) -> tuple[ContextShape, int]:
    """The context and its true shape: context and cells filled in and rounded as llama.cpp does."""
    trained = vocabulary.info.trained_context
    context = shape.context or trained or 4096
    cells = shape.cells or context
    params = llama.llama_context_default_params()
    params.n_ctx = cells
    params.n_batch = params.n_ubatch = shape.rows
    params.n_seq_max = shape.sequences + 1  # with the companion
    params.n_outputs_max = max(shape.outputs, shape.sequences + 1)
    params.n_threads = params.n_threads_batch = shape.threads
    params.kv_unified = True
    params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_AUTO
    params.type_k = params.type_v = KV_TYPES[shape.kv_type]
    with complaints() as reasons, zeros_given_back():
        handle = llama.llama_init_from_model(model, params)
    if not handle:
        reason = "; ".join(reasons) or "llama.cpp gives no reason"
        raise ModelError(
            f"No context of {cells} cells can be made for {vocabulary.info.path} ({reason}). "
            "Lower model.kv_cells or model.context, or set model.kv_type to q8_0."
        )
    cells = llama.llama_n_ctx(handle)
    filled = ContextShape(
        context=min(context, cells),
        cells=cells,
        sequences=shape.sequences,
        rows=shape.rows,
        outputs=shape.outputs,
        kv_type=shape.kv_type,
        threads=shape.threads,
    )
    return filled, int(handle)
