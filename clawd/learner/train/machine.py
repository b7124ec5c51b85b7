"""What a training process takes of the machine: people come first."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Literal

import psutil

NATIVE_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}  # as the kernel calls them on x86-64 and ARM

ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""A waiting OpenMP thread that spins takes its core from the server, and from the very thread it waits for. Nothing of
an update is on a network."""


def set_environment() -> None:
    """To be called before torch is imported."""
    os.environ.update(ENVIRONMENT)


def be_nice(nice: int) -> None:
    """Lower this process's priority to `nice`, or leave it where it is lower already."""
    os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))


def processor_format(setting: Literal["auto", "bfloat16", "float32"]) -> Literal["bfloat16", "float32"]:
    """The base's number format on the CPU. `auto`: bfloat16 where the processor multiplies it natively.

    Elsewhere it is emulated and slower than float32. Native is faster with AMX and without: 4.5 times at these sizes
    with AVX-512 BF16 alone (`docs/results.md`).
    """
    if setting != "auto":
        return setting
    return "bfloat16" if NATIVE_BFLOAT16 & processor_flags() else "float32"


def processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split(":", 1)[1].split()}


def give_back_memory() -> None:
    """Let the system have what glibc's heap holds free; elsewhere nothing.

    A pass over a batch leaves the heap in pieces that the next one's larger tensors don't fit into.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def training_threads(setting: int | None) -> int:
    """None: half of the physical cores.

    With all of them, each step of the server's own threads would wait for one that shares its core with training: with
    two cores and a busy server one thread is as fast as two, and answers stay even (`docs/results.md`).
    """
    return setting or max(1, (psutil.cpu_count(logical=False) or 1) // 2)
