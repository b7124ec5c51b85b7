"""Breaking off a step that only background requests need, the moment a person asks.

llama.cpp calls a function between the operations of a step and gives up when it says so; what the step had written is
taken back, and the step is done again later. A Python function there would wait for the interpreter's lock a thousand
times a step, so it is the C library's `strlen`: of a text of one character it says 1, "give up", of the empty one 0.
Only computing on CPUs asks; on a GPU a step runs to its end, as if nobody had come.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from clawd.model.llama import llama

GO_ON, GIVE_UP = b"\0", b"x"


class Interruption:
    """For one context. `armed` is for the thread that computes, `now` for any."""

    def __init__(self, context: int) -> None:
        self._text = ctypes.create_string_buffer(2)
        self._lock = threading.Lock()  # a step that isn't armed is never broken off, however late the call comes
        self._armed = False
        function = ctypes.cast(ctypes.CDLL(None).strlen, llama.ggml_abort_callback)
        llama.llama_set_abort_callback(context, function, ctypes.cast(self._text, ctypes.c_void_p))

    @contextmanager
    def armed(self, wanted: bool) -> Iterator[None]:
        """The step inside may be broken off, if `wanted`."""
        with self._lock:
            self._armed = wanted
        try:
            yield
        finally:
            with self._lock:
                self._armed = False
                self._text[0] = GO_ON

    def now(self) -> None:
        """Break off the step that is being computed, if it may be."""
        with self._lock:
            if self._armed:
                self._text[0] = GIVE_UP
