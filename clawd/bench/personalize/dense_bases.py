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
            _keep(made, kept)


def _keep(made: Path, kept: Path) -> None:
    """Whole or not at all. A full disk is no reason to lose the run that has just been played."""
    aside = kept / f".{made.name}.{os.getpid()}"
    try:
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made, aside)
        aside.rename(kept / made.name)  # fails where another run was quicker
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)  # the next run makes its own
