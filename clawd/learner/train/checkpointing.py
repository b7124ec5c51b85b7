"""Activation checkpointing: a layer keeps its input alone, and is computed again when its gradient is due.

Guarantees the same gradients to the bit: what is computed again is the same sums in the same order. It costs one more
forward pass of the layers. transformers' own form is for models in train mode, and drops the cache, which a teacher
reads here (`teachers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache


def recompute_layers(layers: Iterable[nn.Module]) -> None:
    """From now on, where gradients are on, each of these decoder layers keeps its input alone."""
    for number, layer in enumerate(layers):
        layer.forward = partial(_recomputed, layer.forward, number)


def _recomputed(
    forward: Callable[..., Tensor], number: int, hidden: Tensor, *, cache: DynamicCache | None, **fixed: Any
) -> Tensor:
    if not torch.is_grad_enabled():
        return forward(hidden, cache=cache, **fixed)
    assert cache is None or cache.get_seq_length(number) == 0, "a pass with gradient begins with an empty cache"
    passes = iter((cache,))

    def run(hidden: Tensor) -> Tensor:
        # The cache is written once. From an empty one a layer reads what it has just computed: the same without it.
        return forward(hidden, cache=next(passes, None), **fixed)

    made: Tensor = checkpoint(run, hidden, use_reentrant=False, preserve_rng_state=False)
    return made
