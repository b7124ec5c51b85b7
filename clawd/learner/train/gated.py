"""The gate of an MLP, silu(g) · u, as one differentiable step that keeps g and u; the plain form keeps silu(g) too.

A sixth of what a layer keeps for the backward pass is made again there, for a few per cent of the layer's time.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = frozenset({"LlamaMLP", "Qwen2MLP", "Qwen3MLP"})  # others may gate in another way
SILU = frozenset({"SiLU", "SiLUActivation"})


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up, of any shape."""
    product: Tensor = _Gated.apply(gate, up)  # type: ignore[no-untyped-call]
    return product


class _Gated(torch.autograd.Function):
    """∂up = ∂y silu(g), ∂g = ∂y up silu'(g)."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return nn.functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        return torch.ops.aten.silu_backward(grad * up, gate), nn.functional.silu(gate).mul_(grad)


def use_lean_gates(model: nn.Module) -> None:
    """Put this form in place of the known MLPs' own."""
    for module in model.modules():
        if type(module).__name__ in PLAIN and type(module.act_fn).__name__ in SILU:
            module.forward = MethodType(_forward, module)


def _forward(mlp: Any, x: Tensor) -> Tensor:
    made: Tensor = mlp.down_proj(gated(mlp.gate_proj(x), mlp.up_proj(x)))
    return made
