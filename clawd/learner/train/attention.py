"""Causal attention for training, as one differentiable step.

torch's own kernel for CPUs computes blocks of 32 queries one after another and takes a third of an update's time on a
model of 135M parameters. This one (it runs on a GPU too, where it was not measured) multiplies blocks of 128 as large
matrices, skips what lies behind the causal edge, and makes the probabilities again for the backward pass, so that
memory grows with the length and not with its square. Scores and probabilities are float32; what is kept for the
backward pass has the format of the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from clawd.learner.budget import QUERY_BLOCK as BLOCK

NAME = "clawd"


def register() -> None:
    """Let models be loaded with `attn_implementation=NAME`."""
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, _no_mask)


def _no_mask(*_: Any, **__: Any) -> None:
    """Sequences begin at 0 and are padded on the right, where a causal mask never looks: there is no other mask."""
    return


def attention_forward(
    _module: nn.Module, q: Tensor, k: Tensor, v: Tensor, _mask: Tensor | None, scaling: float, **__: Any
) -> tuple[Tensor, None]:
    """transformers' interface: q (B, H, L, D), k and v (B, H / G, S, D) → (B, L, H, D)."""
    return causal_attention(q, k, v, scaling).transpose(1, 2).contiguous(), None


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """(B, H, L, D). The L queries are the last of the S positions; G heads of queries share one of keys and values."""
    output: Tensor = _Causal.apply(q.to(v.dtype), k.to(v.dtype), v, scale)  # type: ignore[no-untyped-call]
    return output


class _Causal(torch.autograd.Function):
    """p = softmax(s q kᵀ), o = p v. ∂s = p (∂p - Σ p ∂p) with ∂p = ∂o vᵀ."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.scale = scale
        output = v.new_empty(*q.shape[:3], v.shape[-1])
        keys, values = k.float().contiguous(), v.float().contiguous()  # the same bits from a cache and without one
        for rows, end in _blocks(q.shape[2], k.shape[2]):
            p = _probabilities(_grouped(q[:, :, rows], k) * scale, keys[:, :, :end], rows)
            output[:, :, rows] = _ungrouped(p @ values[:, :, :end], q.shape[1])
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        keys, values = k.float(), v.float()
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(keys), torch.zeros_like(values)
        for rows, end in _blocks(q.shape[2], k.shape[2]):
            queries = _grouped(q[:, :, rows], k) * ctx.scale
            p = _probabilities(queries, keys[:, :, :end], rows)
            pull = _grouped(grad[:, :, rows], k)
            grad_v[:, :, :end] += p.transpose(-1, -2) @ pull
            grad_s = pull @ values[:, :, :end].transpose(-1, -2)
            grad_s.sub_((p * grad_s).sum(dim=-1, keepdim=True)).mul_(p)
            grad_k[:, :, :end] += grad_s.transpose(-1, -2) @ queries
            grad_q[:, :, rows] = _ungrouped(grad_s @ keys[:, :, :end] * ctx.scale, q.shape[1])
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), None


def _blocks(queries: int, positions: int) -> Iterator[tuple[slice, int]]:
    """Rows of queries, and how many positions the last of them sees."""
    for start in range(0, queries, BLOCK):
        stop = min(start + BLOCK, queries)
        yield slice(start, stop), positions - queries + stop


def _grouped(x: Tensor, k: Tensor) -> Tensor:
    """(B, H, L, D) → (B, H / G, G L, D) float32: the heads that share keys below each other."""
    return x.reshape(x.shape[0], k.shape[1], -1, x.shape[-1]).float()


def _ungrouped(x: Tensor, heads: int) -> Tensor:
    return x.reshape(x.shape[0], heads, -1, x.shape[-1])


def _probabilities(queries: Tensor, keys: Tensor, rows: slice) -> Tensor:
    """(B, H / G, G L, end): softmax of the scores, 0 behind the causal edge."""
    scores = queries @ keys.transpose(-1, -2)
    count = rows.stop - rows.start
    last = scores.view(*scores.shape[:2], -1, count, scores.shape[-1])[..., -count:]
    last += torch.full((count, count), -torch.inf, device=scores.device).triu_(1)
    return scores.softmax(dim=-1)
