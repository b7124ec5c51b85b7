"""Where an update is computed: the devices that torch sees, what of their memory is free, and which has room.

A GPU has been computed for and not been run on: one device, no spreading of a model over several.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence

import psutil
import torch

from clawd.errors import UpdateFailed
from clawd.learner.budget import MIB, Format, Kind, Place, Plan, Work, choose
from clawd.learner.job import Job, Sample
from clawd.learner.train.base import training_dtype
from clawd.model.shape import read_shape


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


def first_kind(setting: str) -> Kind:
    """Of the place that is tried first, as far as it can be told without a look at its memory."""
    return "cpu" if setting == "cpu" or (setting == "auto" and not torch.cuda.is_available()) else "cuda"


def make_plan(job: Job, samples: Sequence[Sample]) -> Plan:
    """Where and how the update is computed.

    Raises:
        NoRoom: it fits nowhere.
        UpdateFailed, ModelError: the device isn't there; the model's shape can't be told.
    """
    settings = job.settings
    lengths = [len(sample.prompt_ids) + len(sample.response_ids) for sample in samples]
    work = Work(
        tokens=max((length for length in lengths if length <= settings.max_sample_tokens), default=0),
        hints=max((len(sample.hints) for sample in samples), default=0),
    )
    formats = [(place, _name(training_dtype(settings.dtype, place.kind))) for place in places(settings.device)]
    return choose(read_shape(job.base), work, settings, formats)


def dtype_of(plan: Plan) -> torch.dtype:
    """The base's number format."""
    return torch.bfloat16 if plan.budget.form.dtype == "bfloat16" else torch.float32


def peak_mb(place: Place) -> float:
    """The most memory that this process had at a time, in 2²⁰ bytes: resident, or on a GPU in tensors."""
    if place.kind == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return torch.cuda.max_memory_allocated(place.name) / MIB


def _name(dtype: torch.dtype) -> Format:
    return "bfloat16" if dtype == torch.bfloat16 else "float32"


def _processor() -> Place:
    mine = psutil.Process().memory_info().rss  # is part of what is computed: as the learner saw it before
    return Place("cpu", (psutil.virtual_memory().available + mine) / MIB)


def _gpu(number: int) -> Place:
    return Place(f"cuda:{number}", torch.cuda.mem_get_info(number)[0] / MIB)
