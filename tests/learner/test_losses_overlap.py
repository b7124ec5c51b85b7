"""Overlap counts and hint choice, worked by hand."""

import pytest
import torch
from torch import tensor

from clawd.learner.train.overlap import choose_hints, drawn_hint, overlap_counts, shared_with, take_hint

STUDENT = tensor([[[1, 2, 3], [4, 5, 6]]])  # (1, T = 2, K = 3)
TEACHERS = tensor([[[[3, 9, 1], [7, 8, 9]], [[9, 8, 7], [6, 5, 4]]]])  # (1, M = 2, T, K)
ALL_TOKENS = torch.ones(1, 2, dtype=torch.bool)
BOTH = torch.ones(1, 2, dtype=torch.bool)


def test_overlap_counts_by_hand():
    assert overlap_counts(STUDENT, TEACHERS).tolist() == [[[2, 0], [0, 3]]]
    assert shared_with(STUDENT, TEACHERS)[0, 0, 0].tolist() == [True, False, True]


def test_the_order_within_a_top_k_does_not_matter():
    assert torch.equal(overlap_counts(STUDENT.flip(-1), TEACHERS), overlap_counts(STUDENT, TEACHERS))


def test_sequence_mode_takes_the_largest_sum():
    overlap = overlap_counts(STUDENT, TEACHERS)  # sums 2 and 3
    assert choose_hints(overlap, BOTH, ALL_TOKENS, "sequence").tolist() == [[1, 1]]


def test_token_mode_chooses_at_every_token():
    overlap = overlap_counts(STUDENT, TEACHERS)
    assert choose_hints(overlap, BOTH, ALL_TOKENS, "token").tolist() == [[0, 1]]


def test_padding_does_not_vote():
    overlap = overlap_counts(STUDENT, TEACHERS)
    assert choose_hints(overlap, BOTH, tensor([[True, False]]), "sequence").tolist() == [[0, 0]]


def test_an_absent_hint_is_never_chosen():
    overlap = tensor([[[0, 0], [4, 4]]])
    assert choose_hints(overlap, tensor([[True, False]]), ALL_TOKENS, "sequence").tolist() == [[0, 0]]


@pytest.mark.parametrize("mode", ["sequence", "token"])
def test_the_first_of_equals_wins(mode):
    overlap = torch.full((1, 3, 2), 2)
    assert choose_hints(overlap, torch.ones(1, 3, dtype=torch.bool), ALL_TOKENS, mode).tolist() == [[0, 0]]
    overlap = tensor([[[1, 1], [2, 2], [2, 2]]])
    assert choose_hints(overlap, torch.ones(1, 3, dtype=torch.bool), ALL_TOKENS, mode).tolist() == [[1, 1]]


def test_without_any_hint_the_index_is_zero():
    assert choose_hints(torch.zeros(1, 1, 2, dtype=torch.int64), tensor([[False]]), ALL_TOKENS, "token").tolist() == [
        [0, 0]
    ]


def test_take_hint_follows_the_choice():
    values = torch.arange(12.0).reshape(1, 2, 2, 3)
    assert take_hint(values, tensor([[0, 1]])).tolist() == [[[0.0, 1.0, 2.0], [9.0, 10.0, 11.0]]]


def test_a_lot_draws_the_same_hint_wherever_and_whenever_it_is_drawn():
    drawn = [drawn_hint(3, f"update:0:sample-{number}") for number in range(12)]
    assert drawn == [1, 1, 1, 0, 2, 0, 2, 2, 1, 1, 0, 0]
    assert drawn == [drawn_hint(3, f"update:0:sample-{number}") for number in range(12)]


def test_lots_are_spread_evenly():
    counts = [0, 0, 0]
    for number in range(3000):
        counts[drawn_hint(3, f"update:0:{number}")] += 1
    assert min(counts) > 900
