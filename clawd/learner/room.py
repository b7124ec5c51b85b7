"""Whether the next update has room in this machine's memory, asked before a child is started."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from clawd.config import LearnSettings
from clawd.errors import ModelError, NoRoom
from clawd.learner.budget import Budget, Place, Work, choose, smallest
from clawd.learner.train.machine import processor_format
from clawd.model.shape import ModelShape, read_shape

GPU_NODES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # CUDA, ROCm, both under Windows


def room_waits_for(base: Path, work: Work, settings: LearnSettings, free_mb: float) -> str | None:
    """What of the memory stands against an update of these samples; None: nothing, or the child alone can tell.

    What a GPU has free is known to torch, which isn't loaded here: the child asks, and defers the update itself.
    """
    shape = _shape(base)
    if shape is None or may_use_gpu(settings):
        return None
    try:
        choose(shape, work, settings, [(Place("cpu", free_mb), processor_format(settings.dtype))])
    except NoRoom as shortage:
        return str(shortage)
    return None


def expected(base: Path, work: Work, settings: LearnSettings, free_mb: float) -> Budget | None:
    """What an update on this machine's processor is computed to take; the smallest form if none has room.

    None: it may be computed on a GPU, or the model's shape can't be told.
    """
    shape = _shape(base)
    if shape is None or may_use_gpu(settings):
        return None
    dtype = processor_format(settings.dtype)
    try:
        return choose(shape, work, settings, [(Place("cpu", free_mb), dtype)]).budget
    except NoRoom:
        return smallest(shape, work, settings, "cpu", dtype)


def may_use_gpu(settings: LearnSettings) -> bool:
    if settings.device == "auto":
        return any(Path(node).exists() for node in GPU_NODES)
    return settings.device != "cpu"


@lru_cache(maxsize=1)
def _shape(base: Path) -> ModelShape | None:
    try:
        return read_shape(base)
    except ModelError:  # the update itself says what is wrong with the file
        return None
