"""Linear layers of the frozen base in nf4: 4 bits a weight and a scale per 64 (arXiv 2305.14314), by bitsandbytes.

Guarantees the same dense weight whenever a layer is unpacked, so that forward and backward pass multiply by the same
numbers. The rounding is nf4's: the trainer's base is no longer the served one to the last digit (`docs/results.md`).
"""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor, nn

from clawd.errors import MissingExtra

PACKAGE = "bitsandbytes"
BLOCK = 64  # weights that share a scale


class PackedLinear(nn.Linear):
    """`weight` holds the packed bytes; `dense_weight` unpacks them."""

    def __init__(self, layer: nn.Linear, device: torch.device) -> None:
        """Pack `layer` on `device`. bitsandbytes must be there (`require`)."""
        from bitsandbytes.functional import quantize_4bit  # noqa: PLC0415  an extra

        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        dense = layer.weight.detach().to(device).contiguous()
        packed, self.state = quantize_4bit(dense, blocksize=BLOCK, compress_statistics=True, quant_type="nf4")
        self.weight = nn.Parameter(packed, requires_grad=False)
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().to(device), requires_grad=False)
        self.dense_format: torch.dtype = dense.dtype


def require() -> None:
    """Raises: MissingExtra: bitsandbytes isn't installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise MissingExtra("learn.quantise = nf4 needs bitsandbytes: pip install 'clawd[quant]'.")


def pack_layers(layers: nn.Module, device: torch.device) -> None:
    """Put every linear layer below `layers` in packed form, one after another: never two of them dense."""
    for parent in list(layers.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child, device))


def dense_weight(layer: nn.Linear) -> Tensor:
    """(out, in): the weight as it is multiplied."""
    if not isinstance(layer, PackedLinear):
        return layer.weight
    from bitsandbytes.functional import dequantize_4bit  # noqa: PLC0415

    dense: Tensor = dequantize_4bit(layer.weight, layer.state)
    return dense


def number_format(layer: nn.Linear) -> torch.dtype:
    """In which it multiplies."""
    return layer.dense_format if isinstance(layer, PackedLinear) else layer.weight.dtype
