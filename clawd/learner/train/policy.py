"""The policy that is trained: the dense base with LoRA on every linear layer of its blocks, in PEFT's form.

Guarantees that a forward pass is the same to the bit whether or not a gradient is wanted: the first optimiser step
begins at ratio 1. The base is frozen; LoRA weights and their gradients are float32, multiplied in the base's format.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.lora import Linear as PeftLinear
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from clawd.config import LoraSettings
from clawd.errors import UpdateFailed
from clawd.learner.job import PEFT_CONFIG, PEFT_WEIGHTS
from clawd.learner.train.checkpointing import recompute_layers
from clawd.learner.train.packed import dense_weight, number_format
from clawd.model.lora import LoraPair

NAME = "default"
PREFIX = "base_model.model."  # PEFT's, before the name that the module has in the base


class Policy:
    """One adapter on one base. Not for concurrent use."""

    def __init__(
        self, base: PreTrainedModel, settings: LoraSettings, seed: int, base_name: str, *, checkpointing: bool = False
    ) -> None:
        """Fresh LoRA weights: A random from `seed`, B zero, so the policy begins as the base.

        `checkpointing`: keep each layer's input alone for the backward pass (`checkpointing.py`).
        """
        torch.manual_seed(seed)
        blocks = [name for name, module in base.named_modules() if isinstance(module, nn.Linear) and ".layers." in name]
        config = LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,  # PEFT says int and divides as float
            target_modules=sorted({name.rsplit(".", 1)[1] for name in blocks}),
            task_type="CAUSAL_LM",
        )
        config._register_custom_module({nn.Linear: LoraLinear})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers by a name that this is renaming
            self.model: PeftModel = get_peft_model(base, config)
        self.model.peft_config[NAME].base_model_name_or_path = base_name  # not the cache folder that PEFT sees
        self.model.eval()
        if checkpointing:
            recompute_layers(base.model.layers)
        # float32 even under a bfloat16 base: the logits of a large vocabulary need more than eight bits.
        head: Tensor = base.get_output_embeddings().weight
        self.head = head.detach().float()  # (V, H)

    def hidden(self, input_ids: Tensor, cache: DynamicCache | None = None) -> Tensor:
        """(B, L, H) float32: the last hidden states. Padding stands on the right, where causal attention never looks.

        What `cache` holds stands before `input_ids`; keys and values of these are added to it.
        What runs from layer to layer is float32: in bfloat16 each layer would round the sum of all before it.
        """
        model = self.model.get_base_model().model
        output = model(inputs_embeds=model.embed_tokens(input_ids).float(), cache=cache, use_cache=False)
        hidden: Tensor = output.last_hidden_state
        return hidden

    def adapter_off(self) -> AbstractContextManager[None]:
        """The bare base for the duration."""
        off: AbstractContextManager[None] = self.model.disable_adapter()
        return off

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: weight for name, weight in sorted(self.model.named_parameters()) if weight.requires_grad}

    @property
    def alpha(self) -> float:
        return float(self.model.peft_config[NAME].lora_alpha)

    @property
    def device(self) -> torch.device:
        """Where all of it lies, and where what it is asked must lie."""
        return self.head.device

    @property
    def vocabulary(self) -> int:
        return int(self.head.shape[0])

    def pairs(self) -> Iterator[tuple[str, LoraPair]]:
        """(name of the module in the base, its factors) for every linear layer of the blocks."""
        for name, module in self.model.named_modules():
            if isinstance(module, LoraLinear):
                a, b = module.factors()
                yield name.removeprefix(PREFIX), LoraPair(a.detach().cpu().numpy(), b.detach().cpu().numpy())

    def save(self, folder: Path) -> None:
        """Write PEFT's two files."""
        weights = {
            name: weight.cpu().contiguous()
            for name, weight in get_peft_model_state_dict(self.model, save_embedding_layers=False).items()
        }
        save_file(dict(sorted(weights.items())), folder / PEFT_WEIGHTS, metadata={"format": "pt"})
        config: LoraConfig = self.model.peft_config[NAME]
        stated: dict[str, Any] = {**config.to_dict(), "inference_mode": True}
        text = json.dumps(stated, indent=2, sort_keys=True, default=sorted)
        (folder / PEFT_CONFIG).write_text(text + "\n")

    def load(self, folder: Path) -> None:
        """Take the weights of the version in `folder`.

        Raises:
            UpdateFailed: its files are missing or damaged, or it has another rank, scale or set of layers.
        """
        mine: LoraConfig = self.model.peft_config[NAME]
        try:
            stated = json.loads((folder / PEFT_CONFIG).read_text())
            weights = load_file(folder / PEFT_WEIGHTS)
        except (OSError, ValueError, SafetensorError) as error:
            raise UpdateFailed(f"The parent version in {folder} can't be read: {error}") from error
        for key, value in (("r", mine.r), ("lora_alpha", mine.lora_alpha)):
            if stated.get(key) != value:
                raise UpdateFailed(
                    f"The parent version has {key} = {stated.get(key)} and the settings say {value}: "
                    "set learn.lora back, or begin a new adapter."
                )
        expected = get_peft_model_state_dict(self.model, save_embedding_layers=False)
        if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in expected.items()}:
            raise UpdateFailed(f"The parent version in {folder} doesn't have the layers of this base model.")
        set_peft_model_state_dict(self.model, weights)


class LoraLinear(PeftLinear):  # type: ignore[misc]  # PEFT has no types
    """PEFT's LoRA layer as one differentiable step: no float32 copies of activations, little kept for backward."""

    def factors(self) -> tuple[Tensor, Tensor]:
        """A (r, in) and B (out, r), float32."""
        return self.lora_A[NAME].weight, self.lora_B[NAME].weight

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        base = self.get_base_layer()
        x = x.to(number_format(base))
        if self.disable_adapters:
            return nn.functional.linear(x, dense_weight(base), base.bias)
        a, b = self.factors()
        product: Tensor = _LoraProduct.apply(x, base, a, b, self.scaling[NAME])  # type: ignore[no-untyped-call]
        return product


class _LoraProduct(torch.autograd.Function):
    """y = x Wᵀ + bias + s (x Aᵀ) Bᵀ with W frozen; gradients for x, A and B.

    Takes the layer and not W: one that is kept packed is unpacked for each pass, and dense only as long as that takes.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, base: nn.Linear, a: Tensor, b: Tensor, scale: float) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        low_a, low_b = a.to(x.dtype), (b * scale).to(x.dtype)
        z = flat @ low_a.T  # (tokens, r)
        y = nn.functional.linear(flat, dense_weight(base), base.bias).addmm_(z, low_b.T)
        ctx.save_for_backward(flat, z, low_a, low_b)
        ctx.base, ctx.scale = base, scale
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        flat, z, low_a, low_b = ctx.saved_tensors
        g = grad.reshape(-1, grad.shape[-1])
        g_z = g @ low_b
        g_a = (g_z.T @ flat).float()
        g_b = (g.T @ z).float() * ctx.scale
        g_x = None
        if ctx.needs_input_grad[0]:
            g_x = (g @ dense_weight(ctx.base)).addmm_(g_z, low_a).view(*grad.shape[:-1], -1)
        return g_x, None, g_a, g_b, None
