"""Zeros go back to the system; whatever else lies in the same region stays as it is."""

from __future__ import annotations

import numpy as np
import psutil

from clawd.server.engine.pages import _without, zeros_given_back

MEGABYTE = 1024 * 1024


def resident() -> int:
    return psutil.Process().memory_info().rss


def test_new_zeros_go_back_and_everything_else_stays() -> None:
    old = np.ones(64 * MEGABYTE, dtype=np.uint8)
    old[:] = 0
    with zeros_given_back():
        new = np.ones(64 * MEGABYTE, dtype=np.uint8)  # written, so resident
        new[:] = 0
        marks = np.random.default_rng(0).choice(new.size, 100, replace=False)
        new[marks] = 7
        before = resident()
    assert 55 * MEGABYTE < before - resident() < 75 * MEGABYTE
    assert np.flatnonzero(new).tolist() == sorted(marks.tolist())
    assert new.sum() == 700
    new[:] = 9  # and it can be written to as before
    assert int(new.sum(dtype=np.int64)) == 9 * new.size
    assert not old.any()


def test_memory_without_zeros_is_left_alone() -> None:
    with zeros_given_back():
        block = np.arange(1, 4 * MEGABYTE + 1, dtype=np.uint64)
        copy = block.copy()
    assert (block == copy).all()


def test_only_what_is_new_of_a_region_is_looked_at() -> None:
    known = [(10, 20), (30, 40)]
    assert list(_without([(10, 20), (30, 40)], known)) == []
    assert list(_without([(5, 45)], known)) == [(5, 10), (20, 30), (40, 45)]
    assert list(_without([(15, 35), (50, 60)], known)) == [(20, 30), (50, 60)]
