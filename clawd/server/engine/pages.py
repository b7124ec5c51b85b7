"""Memory that holds only zeros goes back to the system until it is written to.

llama.cpp clears the whole key-value cache when it makes one, which makes every page of it resident, used or not. To the
kernel, a private anonymous page that was given back reads as zeros: for a page of zeros nothing changes but the memory
that it takes.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

MAPS = Path("/proc/self/maps")
LEAST_REGION = 16 * 1024 * 1024  # bytes; more than a thread's stack takes
WORD = 8

Region = tuple[int, int]
"""Address of the first byte, and of the one behind the last."""


@contextmanager
def zeros_given_back() -> Iterator[None]:
    """Whatever large memory comes into being inside the block gives its zero pages back at the end of it.

    Memory that was there before isn't looked at: another thread may be writing to it. Does nothing where there is no
    `/proc/self/maps`.
    """
    before = _regions()
    yield
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for region in _without(_regions(), before):
        if region[1] - region[0] >= LEAST_REGION:
            for first, last in _zero_runs(*region):
                libc.madvise(first, last - first, mmap.MADV_DONTNEED)  # advice: refused, it changes nothing


def _regions() -> list[Region]:
    """The writable private mappings without a file, in order."""
    if not MAPS.exists():
        return []
    found = []
    for line in MAPS.read_text().splitlines():
        addresses, permissions, _offset, _device, inode, *name = line.split(maxsplit=5)
        if permissions == "rw-p" and inode == "0" and not name:
            start, end = addresses.split("-")
            found.append((int(start, 16), int(end, 16)))
    return found


def _without(regions: list[Region], known: list[Region]) -> Iterator[Region]:
    """The parts of `regions` that lie in none of `known`: the kernel merges neighbours, so a region can be both."""
    for start, end in regions:
        at = start
        for known_start, known_end in known:
            if known_end <= at or known_start >= end:
                continue
            if known_start > at:
                yield at, known_start
            at = max(at, known_end)
        if at < end:
            yield at, end


def _zero_runs(start: int, end: int) -> Iterator[Region]:
    """The runs of pages that hold only zeros."""
    page = mmap.PAGESIZE
    region = (ctypes.c_uint64 * ((end - start) // WORD)).from_address(start)
    words = np.ctypeslib.as_array(region).reshape(-1, page // WORD)
    zero = np.concatenate(([False], ~words.any(axis=1), [False]))
    edges = np.flatnonzero(zero[1:] != zero[:-1])
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield start + first * page, start + last * page
