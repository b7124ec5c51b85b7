"""RMS normalisation for training, as one differentiable step.

The plain form keeps three float32 copies of what it normalises for the backward pass; this one keeps its input, which
the residual stream holds anyway, and gives its output in the format that the layers behind it multiply in.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

NAMES = ("layernorm", "q_norm", "k_norm")  # not the last one: what it gives stays float32
PLAIN = frozenset({"LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm"})  # others may scale in another way


class RmsNorm(nn.Module):
    """y = w x / √(mean(x²) + ε), computed in float32."""

    def __init__(self, weight: nn.Parameter, epsilon: float) -> None:
        super().__init__()
        self.weight = weight
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _Normalised.apply(x, self.weight, self.epsilon)  # type: ignore[no-untyped-call]
        return y


class _Normalised(torch.autograd.Function):
    """With n = x / rms and g = ∂y w: ∂x = (g - n mean(g n)) / rms. The weight is frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        wide = x.float()
        inverse = wide.square().mean(dim=-1, keepdim=True).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, inverse, weight)
        return (wide * inverse).mul_(weight).to(weight.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, inverse, weight = ctx.saved_tensors
        n = x.float() * inverse
        g = grad.float() * weight
        g.sub_(n * (g * n).mean(dim=-1, keepdim=True)).mul_(inverse)
        return g.to(x.dtype), None, None


def use_lean_norms(model: nn.Module) -> None:
    """Put this form in place of the norms of every block: before attention and MLP, and of queries and keys."""
    for block in model.modules():
        for name, child in list(block.named_children()):
            if name.endswith(NAMES) and type(child).__name__ in PLAIN:
                setattr(block, name, RmsNorm(cast(nn.Parameter, child.weight), cast(float, child.variance_epsilon)))
