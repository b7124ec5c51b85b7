"""The devices that torch sees, and what of their memory is free."""

from __future__ import annotations

import psutil
import torch

from clawd.errors import UpdateFailed
from clawd.learner.budget import Place

MIB = 2**20


def places(setting: str) -> list[Place]:
    """Where an update may be computed, best first. `setting`: learn.device.

    Raises:
        UpdateFailed: the device that it names isn't there.
    """
    if setting == "cpu":
        return [_processor()]
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if setting == "auto":
        gpus = sorted((_gpu(number) for number in range(seen)), key=lambda place: -place.free_mb)
        return [*gpus, _processor()]
    number = int(setting.partition(":")[2] or 0)
    if number >= seen:
        raise UpdateFailed(f"learn.device = {setting}, but torch sees {seen or 'no'} GPU: set it to auto or cpu.")
    return [_gpu(number)]


def kind_of(setting: str) -> str:
    """`cpu` or `cuda`: of the place that is tried first."""
    return "cpu" if setting == "cpu" or (setting == "auto" and not torch.cuda.is_available()) else "cuda"


def _processor() -> Place:
    return Place("cpu", psutil.virtual_memory().available / MIB)


def _gpu(number: int) -> Place:
    return Place(f"cuda:{number}", torch.cuda.mem_get_info(number)[0] / MIB)
