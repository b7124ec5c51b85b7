"""llama.cpp's low-level interface, with its log lines sent to Python's logging (logger `llama.cpp`).

Whoever needs the binding imports it from here, so that no line reaches stderr on its own. Importing this loads the
shared library into the process; `clawd.model.binding` says beforehand whether that is safe.
"""
# ruff: noqa: E402  OpenMP reads its environment once, when the shared library is loaded

from __future__ import annotations

import ctypes
import logging
import os
import threading

SPINS = "1000"
"""How often a thread of llama.cpp looks for the others before it sleeps. OpenMP's own 300,000 hold on to a core that a
thread it waits for may need: with other programs on all cores, such as an update, a token took 300 ms instead of 27."""

if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = SPINS

import llama_cpp.llama_cpp as llama

logger = logging.getLogger("llama.cpp")

_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_CONTINUED = 5  # belongs to the line before

_captured = threading.local()  # .lines: where this thread's warnings and errors are kept; .quiet: and nowhere else


@llama.llama_log_callback  # type: ignore[untyped-decorator]
def _forward(level: int, text: bytes, _user_data: object) -> None:
    if level == 1 and not logger.isEnabledFor(logging.DEBUG):
        return  # hundreds of these per graph
    line = text.decode("utf-8", "replace").strip()
    if not line or level == _CONTINUED:
        return
    severity = _LEVELS.get(level, logging.INFO)
    if severity >= logging.WARNING and getattr(_captured, "lines", None) is not None:
        _captured.lines.append(line)
        if _captured.quiet:
            return
    # What llama.cpp says about itself at load is detail to a person who reads the daemon's log.
    logger.log(logging.DEBUG if severity == logging.INFO else severity, "%s", line)


class complaints:  # noqa: N801  reads as what it is used for: `with complaints() as reasons:`
    """Collect what llama.cpp warns of on this thread meanwhile: that names the reason of a refusal.

    `quiet`: it isn't logged; whoever collects it says what is worth it.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def __enter__(self) -> list[str]:
        lines: list[str] = []
        _captured.lines, _captured.quiet = lines, self._quiet
        return lines

    def __exit__(self, *_: object) -> None:
        _captured.lines = None


llama.llama_log_set(_forward, ctypes.c_void_p(0))
llama.llama_backend_init()

__all__ = ["complaints", "llama"]
