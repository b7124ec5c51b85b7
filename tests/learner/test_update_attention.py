"""The trainer's own attention: the same numbers and gradients as the plain form, at every edge of its blocks."""

import pytest
import torch
from torch import Tensor

from clawd.learner.train.attention import BLOCK, causal_attention


def plain(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = scale * q @ k.transpose(-1, -2)
    queries, positions = scores.shape[-2:]
    hidden = torch.ones(queries, positions, dtype=torch.bool).triu(positions - queries + 1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def some(heads: int, length: int, size: int = 8) -> Tensor:
    return torch.randn(2, heads, length, size, requires_grad=True)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("queries", [1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
@pytest.mark.parametrize("before", [0, 7])
def test_it_equals_the_plain_form(groups, queries, before):
    torch.manual_seed(0)
    q, k, v = some(2 * groups, queries), some(2, queries + before), some(2, queries + before)
    pull = torch.randn(2, 2 * groups, queries, 8)
    mine, expected = causal_attention(q, k, v, 0.3), plain(q, k, v, 0.3)
    assert torch.allclose(mine, expected, atol=1e-5)
    gradients = [torch.autograd.grad((output * pull).sum(), (q, k, v)) for output in (mine, expected)]
    for gradient, wanted in zip(*gradients, strict=True):
        assert torch.allclose(gradient, wanted, rtol=1e-4, atol=1e-5)


def test_keys_and_values_of_different_sizes():
    torch.manual_seed(0)
    q, k, v = some(4, 6), some(2, 6), some(2, 6, size=5)
    assert torch.allclose(causal_attention(q, k, v, 0.3), plain(q, k, v, 0.3), atol=1e-5)


def test_later_positions_do_not_matter():
    torch.manual_seed(0)
    q, k, v = (some(2, BLOCK + 9).detach() for _ in range(3))
    before = causal_attention(q, k, v, 0.3)
    k[:, :, 40:], v[:, :, 40:] = 9.0, -9.0
    after = causal_attention(q, k, v, 0.3)
    assert torch.equal(before[:, :, :40], after[:, :, :40])
    assert not torch.allclose(before[:, :, 40:], after[:, :, 40:])


def test_in_bfloat16_it_is_as_near_as_the_format_allows():
    torch.manual_seed(0)
    q, k, v = (some(3, 200) for _ in range(3))
    half = [x.detach().bfloat16() for x in (q, k, v)]
    mine = causal_attention(*half, 0.3)
    assert mine.dtype == torch.bfloat16
    assert torch.allclose(mine.float(), plain(*(x.float() for x in half), 0.3), atol=2e-2)
