"""Which hint teaches: a choice among a turn's candidates (arXiv 2603.10165, `docs/algorithm.md`).

Guided by overlap, or by lot for comparison: the paper found the lot clearly worse. Axes: B samples, M hints, T response
tokens, K support. Nothing here carries a gradient.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import torch
from torch import Tensor


def shared_with(student_ids: Tensor, teacher_ids: Tensor) -> Tensor:
    """(B, M, T, K) bool: whether the student's k-th most likely token is among the teacher's top-k too."""
    return (student_ids[:, None, :, :, None] == teacher_ids[:, :, :, None, :]).any(dim=-1)


def overlap_counts(student_ids: Tensor, teacher_ids: Tensor) -> Tensor:
    """O[h, i] = |S^q_i ∩ S^p_{i,h}|, as (B, M, T) int64. The ids of one top-k set differ from each other."""
    return shared_with(student_ids, teacher_ids).sum(dim=-1)


def choose_hints(overlap: Tensor, hints: Tensor, tokens: Tensor, mode: Literal["sequence", "token"]) -> Tensor:
    """The hint h* for every token, as (B, T) int64; the first of equals wins.

    `sequence`: h* = argmax_h Σ_i O[h, i], the same for the whole response. `token`: h*(i) = argmax_h O[h, i].
    `hints` and `tokens` are bool and say which hints and tokens exist; a sample without a hint gets index 0.
    """
    scores = overlap * tokens[:, None, :]
    if mode == "sequence":
        scores = scores.sum(dim=-1, keepdim=True).expand_as(scores)
    count = overlap.shape[1]
    # torch.argmax promises no order among equals: the subtracted index makes every score unique.
    order = torch.arange(count, device=scores.device)
    ranked = scores * count - order[None, :, None]
    lowest = torch.iinfo(torch.int64).min
    return ranked.masked_fill(~hints[:, :, None], lowest).argmax(dim=1)


def take_hint(values: Tensor, choice: Tensor) -> Tensor:
    """(B, T, K): what `values` holds for the chosen hint of every token."""
    index = choice[:, None, :, None].expand(-1, 1, -1, values.shape[-1])
    return values.gather(1, index).squeeze(1)


def drawn_hint(count: int, lot: str) -> int:
    """One of `count` hints by lot: the same lot draws the same, on any machine and in any order of the samples."""
    return int.from_bytes(hashlib.sha256(lot.encode()).digest()[:8]) % count
