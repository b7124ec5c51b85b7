"""Dense bases for training, which each data folder keeps for itself: an experiment's daemons hand them on.

Making one of a 0.5B model anew in each run would cost a minute or two. They are sealed: whoever reads one checks it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATTERN = "dense-*"


@contextmanager
def handed_on(kept: Path, cache: Path) -> Iterator[None]:
    """The daemon that owns `cache` finds those in `kept` there; what it makes is kept, unless something failed."""
    for base in sorted(kept.glob(PATTERN)):
        (cache / base.name).symlink_to(base.resolve())
    yield
    for made in sorted(cache.glob(PATTERN)):
        if not made.is_symlink() and not (kept / made.name).exists():
            kept.mkdir(parents=True, exist_ok=True)
            aside = kept / f".{made.name}.{os.getpid()}"
            shutil.copytree(made, aside)
            _place(aside, kept / made.name)


def _place(aside: Path, place: Path) -> None:
    """Whole or not at all; another run may have been quicker."""
    try:
        aside.rename(place)
    except OSError:
        shutil.rmtree(aside)
