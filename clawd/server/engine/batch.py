"""A reusable `llama_batch`, filled through numpy views instead of one ctypes assignment per field."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clawd.model.llama import llama
from clawd.server.engine.scheduler import Row


class Batch:
    """Room for `capacity` tokens, each in one sequence."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.native = llama.llama_batch_init(capacity, 0, 1)
        shape = (capacity,)
        self._token = np.ctypeslib.as_array(self.native.token, shape)
        self._position = np.ctypeslib.as_array(self.native.pos, shape)
        self._logits = np.ctypeslib.as_array(self.native.logits, shape)
        np.ctypeslib.as_array(self.native.n_seq_id, shape)[:] = 1
        # One array for all sequence ids; llama.cpp's own allocations stay in place for llama_batch_free.
        self._sequence = [self.native.seq_id[i] for i in range(capacity)]

    def fill(self, rows: Sequence[Row], companion: int | None = None) -> list[tuple[Row, int]]:
        """Lay out the tokens of `rows`; returns the rows that sample, with the batch index of their logits.

        `companion`: a sequence that gets one token, for whose sake nothing is computed but that the batch isn't of one.
        """
        samples = []
        at = 0
        for row in rows:
            end = at + len(row.tokens)
            self._token[at:end] = row.tokens
            self._position[at:end] = np.arange(row.start, row.start + len(row.tokens))
            self._logits[at:end] = 0
            for i in range(at, end):
                self._sequence[i][0] = row.sequence
            if row.samples:
                self._logits[end - 1] = 1
                samples.append((row, end - 1))
            at = end
        if companion is not None:
            self._token[at], self._position[at], self._logits[at] = 0, 0, 0
            self._sequence[at][0] = companion
            at += 1
        self.native.n_tokens = at
        return samples

    def close(self) -> None:
        llama.llama_batch_free(self.native)
