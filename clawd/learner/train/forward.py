"""Log-probabilities of response tokens under a policy: padding, micro-batches, and the output head.

Guarantees that logits exist only at response positions, a chunk at a time, and that scoring and training read the same
numbers from the same micro-batch. Axes: B sequences, L padded length, T response tokens, N response tokens of all
sequences, H hidden, J asked ids, K support, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from clawd.learner.budget import CHUNK_LOGITS, LEAST_ROWS
from clawd.learner.train.policy import Policy

BLOCK_LOGITS = 1 << 17  # of them worked on at a time: 512 KiB, which stay in the processor's cache


@dataclass(frozen=True)
class TokenSequence:
    """A prompt (at least one id) and the response (at least one id) that is read after it."""

    prompt_ids: list[int]
    response_ids: list[int]

    @property
    def length(self) -> int:
        """Tokens that must be fed: the last one predicts nothing."""
        return len(self.prompt_ids) + len(self.response_ids) - 1


@dataclass(frozen=True)
class Padded:
    """Sequences of one forward pass, padded on the right."""

    input_ids: Tensor  # (B, L) int64
    response_ids: Tensor  # (B, T) int64, 0 where padded
    tokens: Tensor  # (B, T) bool
    positions: Tensor  # (B, T) int64: where in L the token is predicted, 0 where padded


def micro_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices, longest first, in groups whose padded size stays within `budget`; a longer one goes alone."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    groups: list[list[int]] = []
    for index in order:
        longest = lengths[groups[-1][0]] if groups else 0
        if groups and longest * (len(groups[-1]) + 1) <= budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def pad(sequences: Sequence[TokenSequence], device: torch.device) -> Padded:
    batch = len(sequences)
    longest = max(sequence.length for sequence in sequences)
    longest_response = max(len(sequence.response_ids) for sequence in sequences)
    # Put together on the CPU, where that is quick.
    input_ids = torch.zeros(batch, longest, dtype=torch.int64, device="cpu")
    response_ids = torch.zeros(batch, longest_response, dtype=torch.int64, device="cpu")
    tokens = torch.zeros(batch, longest_response, dtype=torch.bool, device="cpu")
    positions = torch.zeros(batch, longest_response, dtype=torch.int64, device="cpu")
    for row, sequence in enumerate(sequences):
        count, start = len(sequence.response_ids), len(sequence.prompt_ids) - 1
        input_ids[row, : sequence.length] = _ids((sequence.prompt_ids + sequence.response_ids)[:-1])
        response_ids[row, :count] = _ids(sequence.response_ids)
        tokens[row, :count] = True
        positions[row, :count] = torch.arange(start, start + count, device="cpu")
    return Padded(*(made.to(device) for made in (input_ids, response_ids, tokens, positions)))


def _ids(ids: list[int]) -> Tensor:
    return torch.tensor(ids, device="cpu")


def response_hidden(policy: Policy, batch: Padded, cache: DynamicCache | None = None) -> Tensor:
    """(N, H) float32: the hidden states that predict the response tokens, sequence by sequence; `cache` as `hidden`."""
    hidden = policy.hidden(batch.input_ids, cache)
    rows, columns = batch.tokens.nonzero(as_tuple=True)
    return hidden[rows, batch.positions[rows, columns]].float()


def unpack(values: Tensor, tokens: Tensor) -> Tensor:
    """(N, ...) → (B, T, ...), 0 where padded; differentiable."""
    padded = values.new_zeros(*tokens.shape, *values.shape[1:])
    return padded.index_put(tokens.nonzero(as_tuple=True), values)


def picked_logprobs(hidden: Tensor, head: Tensor, ids: Tensor) -> Tensor:
    """(N, J): full-vocabulary log-probabilities of `ids` (N, J); differentiable in `hidden` (N, H) alone."""
    return read_head(hidden, head, ids, 0)[0]


def read_head(hidden: Tensor, head: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities of the asked ids (N, J) and the k likeliest ones, (N, J + K); which those are; entropy (N,).

    The entropy, in nats, is that of the whole distribution, without gradient. The log-probabilities are differentiable
    in `hidden` (N, H) alone. The same numbers to the bit whether or not a gradient is wanted.
    """
    values: Tensor
    chosen: Tensor
    entropy: Tensor
    values, chosen, entropy = _Read.apply(hidden, head, ids, k)  # type: ignore[no-untyped-call]
    return values, chosen, entropy


@torch.no_grad()
def entropies(hidden: Tensor, head: Tensor) -> Tensor:
    """(N,): entropy of the distribution that each hidden state (N, H) predicts, in nats."""
    nothing = torch.empty(len(hidden), 0, dtype=torch.int64)
    return read_head(hidden, head, nothing, 0)[2]


class _Read(torch.autograd.Function):
    """log softmax(h Wᵀ)[ids] with W frozen, and the entropy.

    ∂/∂h Σ_j g_j ℓ_j = Σ_j g_j W[id_j] - (Σ_j g_j) E_p[W]. The expectation doesn't depend on g, so it is taken while
    the logits exist: neither they nor a softmax over the vocabulary are kept for backward or made again. Each row's
    logits become their exponentials in place, which serve the norm, the entropy and the expectation.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        values, chosen, entropy, expected = [], [], [], []
        for rows in _chunks(hidden, head):
            logits = hidden[rows] @ head.T
            wanted = torch.cat([ids[rows], logits.topk(k, dim=-1).indices], dim=-1) if k else ids[rows]
            picked = logits.gather(1, wanted)
            largest, total, of_rows = _exponentiate(logits)
            values.append(picked - largest - total.log())
            chosen.append(wanted)
            entropy.append(of_rows)
            if ctx.needs_input_grad[0]:
                expected.append((logits @ head).div_(total))
            del logits  # or the next chunk's would stand beside it
        all_chosen, all_entropy = torch.cat(chosen), torch.cat(entropy)
        ctx.mark_non_differentiable(all_chosen, all_entropy)
        if expected:
            ctx.save_for_backward(torch.cat(expected), head, all_chosen)
        return torch.cat(values), all_chosen, all_entropy

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        expected, head, chosen = ctx.saved_tensors
        pull = torch.einsum("nj,njh->nh", grad, head[chosen])
        return pull - grad.sum(dim=1, keepdim=True) * expected, None, None, None


def _exponentiate(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Replace logits (N, V) by e^(z - max z), in place; max z and Z = Σ e^(z - max z), (N, 1), and the entropy (N,).

    H = log Z - E_p[z - max z]. E_p[z] = h·E_p[W] would be there for the asking where a gradient is wanted, but the
    products of matrices may be rounded to bfloat16 (`base.matmul_precision`), and a small entropy is the difference of
    two large numbers.
    """
    size = max(1, BLOCK_LOGITS // logits.shape[1])
    parts = []
    for block in torch.split(logits, size):
        largest = block.amax(dim=-1, keepdim=True)
        weights = block.sub_(largest).exp()
        total = weights.sum(dim=-1, keepdim=True)
        entropy = total[:, 0].log() - torch.linalg.vecdot(weights, block) / total[:, 0]
        block.copy_(weights)
        parts.append((largest, total, entropy))
    largest, total, entropy = (torch.cat(column) for column in zip(*parts, strict=True))
    return largest, total, entropy


def kl_to(hidden: Tensor, reference: Tensor, head: Tensor) -> Tensor:
    """(N,): KL(p ‖ q) over the whole vocabulary, p of `hidden` (N, H) and q of `reference` (N, H).

    Exact, where an estimate at sampled tokens has variance; differentiable in `hidden` alone.
    """
    divergence: Tensor = _Divergence.apply(hidden, reference, head)  # type: ignore[no-untyped-call]
    return divergence


class _Divergence(torch.autograd.Function):
    """With z = h Wᵀ and W frozen: ∂KL/∂z = p (log p - log q - KL), so ∂KL/∂h is that times W; a chunk at a time."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, reference: Tensor, head: Tensor) -> Tensor:
        divergences, gradients = [], []
        for rows in _chunks(hidden, head):
            log_p = torch.log_softmax(hidden[rows] @ head.T, dim=-1)
            gap = log_p - torch.log_softmax(reference[rows] @ head.T, dim=-1)
            p = log_p.exp_()
            divergence = (p * gap).sum(dim=-1)
            divergences.append(divergence)
            if ctx.needs_input_grad[0]:
                gradients.append(gap.sub_(divergence[:, None]).mul_(p) @ head)
        if gradients:
            ctx.save_for_backward(torch.cat(gradients))
        return torch.cat(divergences)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return grad[:, None] * gradient, None, None


def kl_from(hidden: Tensor, reference: Tensor, head: Tensor) -> Tensor:
    """(N,): KL(q ‖ p) over the whole vocabulary, p of `hidden` (N, H) and q of `reference` (N, H).

    The other direction of `kl_to`: it grows where q has mass that p lacks. Differentiable in `hidden` alone.
    """
    divergence: Tensor = _Coverage.apply(hidden, reference, head)  # type: ignore[no-untyped-call]
    return divergence


class _Coverage(_Divergence):
    """With z = h Wᵀ and W frozen: ∂KL(q ‖ p)/∂z = p - q, so ∂KL/∂h is that times W; a chunk at a time."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, reference: Tensor, head: Tensor) -> Tensor:
        divergences, gradients = [], []
        for rows in _chunks(hidden, head):
            log_p = torch.log_softmax(hidden[rows] @ head.T, dim=-1)
            log_q = torch.log_softmax(reference[rows] @ head.T, dim=-1)
            q = log_q.exp()
            divergences.append((q * log_q.sub_(log_p)).sum(dim=-1))
            if ctx.needs_input_grad[0]:
                gradients.append(log_p.exp_().sub_(q) @ head)
        if gradients:
            ctx.save_for_backward(torch.cat(gradients))
        return torch.cat(divergences)


def _chunks(hidden: Tensor, head: Tensor) -> list[slice]:
    size = max(LEAST_ROWS, CHUNK_LOGITS // head.shape[0])
    rows = max(1, hidden.shape[0])  # of nothing there is one chunk, an empty one
    return [slice(start, start + size) for start in range(0, rows, size)]
