"""The trainer's own normalisation against transformers' and against finite differences."""

import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from clawd.learner.train.norm import RmsNorm, use_lean_norms


def norms(size: int, dtype: torch.dtype) -> tuple[RmsNorm, LlamaRMSNorm]:
    plain = LlamaRMSNorm(size, eps=1e-5).to(dtype)
    plain.weight.data = torch.randn(size).to(dtype)
    plain.requires_grad_(False)
    return RmsNorm(plain.weight, plain.variance_epsilon), plain


def test_by_hand():
    # mean(x²) = (9 + 16) / 2 = 12.5: x / √12.5 = 0.8485281, 1.1313708; times 2, -1.
    norm = RmsNorm(nn.Parameter(torch.tensor([2.0, -1.0]), requires_grad=False), 0.0)
    assert norm(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([1.6970563, -1.1313708], abs=1e-6)


def test_it_equals_the_plain_form_and_so_does_its_gradient():
    torch.manual_seed(0)
    mine, plain = norms(16, torch.float32)
    x, pull = torch.randn(2, 3, 16, requires_grad=True), torch.randn(2, 3, 16)
    assert torch.allclose(mine(x), plain(x), atol=1e-6)
    gradients = [torch.autograd.grad((norm(x) * pull).sum(), x)[0] for norm in (mine, plain)]
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-6)


def test_over_a_bfloat16_base_it_takes_float32_and_gives_bfloat16():
    mine, plain = norms(16, torch.bfloat16)
    x = torch.randn(4, 16, requires_grad=True)
    y = mine(x)
    y.float().sum().backward()
    assert (y.dtype, x.grad.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(y, plain(x).to(torch.bfloat16))


def test_only_norms_of_a_known_kind_before_the_layers_are_replaced():
    class Other(nn.Module):
        weight = None

    block = nn.Module()
    block.input_layernorm, block.q_norm, block.norm, block.post_attention_layernorm = (
        norms(4, torch.float32)[1],
        LlamaRMSNorm(4),
        LlamaRMSNorm(4),
        Other(),
    )
    kept = block.norm, block.post_attention_layernorm
    use_lean_norms(block)
    assert isinstance(block.input_layernorm, RmsNorm) and isinstance(block.q_norm, RmsNorm)
    assert (block.norm, block.post_attention_layernorm) == kept
