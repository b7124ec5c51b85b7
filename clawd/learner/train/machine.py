"""What a training process takes of the machine: people come first."""

from __future__ import annotations

import os

import psutil

ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""A waiting OpenMP thread that spins takes its core from the server, and from the very thread it waits for. Nothing of
an update is on a network."""


def set_environment() -> None:
    """To be called before torch is imported."""
    os.environ.update(ENVIRONMENT)


def be_nice(nice: int) -> None:
    """Lower this process's priority to `nice`, or leave it where it is lower already."""
    os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))


def training_threads(setting: int | None) -> int:
    """None: half of the physical cores.

    With all of them, each step of the server's own threads would wait for one that shares its core with training: with
    two cores and a busy server one thread is as fast as two, and answers stay even (`docs/results.md`).
    """
    return setting or max(1, (psutil.cpu_count(logical=False) or 1) // 2)
