"""Which samples of an update aren't trained, so that there is something to tell by whether it helped."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from clawd.learner.job import Sample
from clawd.learner.train.advantages import no_signal

ONE_IN = 8


def split(samples: Sequence[Sample], wanted: int, lot: str) -> tuple[list[Sample], list[Sample]]:
    """Those that are trained and those that are held back, at most `wanted` and one in eight.

    Drawn by `lot`, the update's own: a sample that waits again is hardly drawn a second time. Steps of tasks are never
    held back, as their groups would change, and nobody is where the rest would have no signal without them.
    """
    candidates = sorted((sample for sample in samples if sample.task is None), key=lambda sample: _lot(lot, sample))
    chosen = {sample.sample_id for sample in candidates[: min(wanted, len(samples) // ONE_IN)]}
    trained = [sample for sample in samples if sample.sample_id not in chosen]
    if no_signal(trained) is not None:
        return list(samples), []
    return trained, [sample for sample in samples if sample.sample_id in chosen]


def _lot(lot: str, sample: Sample) -> str:
    return hashlib.sha256(f"{lot}:{sample.sample_id}".encode()).hexdigest()
