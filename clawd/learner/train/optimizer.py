"""AdamW and its state on disk: each version keeps the moments that the next update goes on from."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from clawd.config import LearnSettings
from clawd.errors import UpdateFailed
from clawd.learner.job import OPTIMIZER_FILE

MOMENTS = ("exp_avg", "exp_avg_sq")
STEP = "step"


def learning_rate(settings: LearnSettings, number: int) -> float:
    """The rate of the update that makes version `number`, from 1: an adapter that has learnt takes smaller steps."""
    divisor = {"constant": 1.0, "sqrt": math.sqrt(number), "inverse": float(number)}[settings.rate_schedule]
    return settings.learning_rate / divisor


def make_optimizer(parameters: dict[str, nn.Parameter], settings: LearnSettings, number: int) -> torch.optim.AdamW:
    """`number`: of the version that the update makes."""
    rate = learning_rate(settings, number)
    return torch.optim.AdamW(parameters.values(), lr=rate, weight_decay=settings.weight_decay)


def save_optimizer(optimizer: torch.optim.AdamW, parameters: dict[str, nn.Parameter], folder: Path) -> None:
    """Write moments and step count, keyed `<moment>.<parameter>`."""
    tensors = {
        f"{moment}.{name}": optimizer.state[p][moment].cpu() for name, p in parameters.items() for moment in MOMENTS
    }
    tensors[STEP] = optimizer.state[next(iter(parameters.values()))][STEP].cpu()
    save_file(tensors, folder / OPTIMIZER_FILE)


def load_optimizer(optimizer: torch.optim.AdamW, parameters: dict[str, nn.Parameter], folder: Path) -> None:
    """Raises: UpdateFailed: the file in `folder` is missing or damaged, or belongs to other parameters."""
    try:
        tensors = load_file(folder / OPTIMIZER_FILE)
        for name, parameter in parameters.items():
            moments = {moment: tensors[f"{moment}.{name}"] for moment in MOMENTS}
            if any(value.shape != parameter.shape for value in moments.values()):
                raise UpdateFailed(f"The optimizer state in {folder} has another shape for {name}.")
            placed = {moment: value.to(parameter.device) for moment, value in moments.items()}
            optimizer.state[parameter] = {STEP: tensors[STEP].clone(), **placed}
    except (OSError, SafetensorError, KeyError) as error:
        raise UpdateFailed(f"The optimizer state in {folder} can't be read: {error}") from error
