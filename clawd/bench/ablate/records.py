"""What is kept of a run in a folder, so that the same command goes on where it was stopped: the batch, and each update.

A file is named for what its content depends on: model, batch, resolved settings, number of updates. It doesn't depend
on clawd's own code: after a change of that, take another folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from clawd.bench.ablate.batch import Lesson
from clawd.bench.ablate.figures import Measured
from clawd.bench.ablate.variants import Variant
from clawd.errors import BenchFailed

Kept = TypeVar("Kept")
LESSONS = TypeAdapter(list[Lesson])


@dataclass(frozen=True)
class Ended:
    """What came of a variant under one seed; exactly one of the two is there."""

    measured: Measured | None
    refused: str | None
    failed: bool = False  # not refused by a guard: it could not be computed, and may be another time


ENDED = TypeAdapter(Ended)


class Records:
    """`folder`, which must be there; none: nothing is kept."""

    def __init__(self, folder: Path | None, model_fingerprint: str) -> None:
        self._folder = folder
        self._model = model_fingerprint
        self._batch = ""

    def batch(self, make: Callable[[], list[Lesson]]) -> list[Lesson]:
        """The kept batch, or that which `make` makes. To be called first. Raises BenchFailed."""
        lessons = self._kept(f"batch-{self._model[:16]}", LESSONS, make)
        self._batch = hashlib.sha256(LESSONS.dump_json(lessons)).hexdigest()
        return lessons

    def ended(self, variant: Variant, seed: int, make: Callable[[], Ended]) -> Ended:
        """What was kept of this variant and seed, or what `make` finds. Raises BenchFailed."""
        settings = variant.settings(seed).model_dump(mode="json")
        depends = json.dumps([self._model, self._batch, settings, variant.updates], sort_keys=True)
        return self._kept(
            f"update-{hashlib.sha256(depends.encode()).hexdigest()[:16]}", ENDED, make, lambda one: not one.failed
        )

    def _kept(
        self,
        name: str,
        adapter: TypeAdapter[Kept],
        make: Callable[[], Kept],
        is_final: Callable[[Kept], bool] = lambda _: True,
    ) -> Kept:
        if self._folder is None:
            return make()
        path = self._folder / f"{name}.json"
        try:
            return adapter.validate_json(path.read_bytes())
        except FileNotFoundError:
            made = make()
        except ValidationError as error:
            raise BenchFailed(f"{path} holds something else than was written: remove it. {error}") from None
        if not is_final(made):
            return made
        aside = path.with_name(f".{path.name}")
        aside.write_bytes(adapter.dump_json(made))
        aside.replace(path)
        return made
