"""What is finished isn't run again, and nothing else is taken for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clawd.bench.ablate.batch import Lesson, _hints
from clawd.bench.ablate.figures import Measured
from clawd.bench.ablate.reading import Spoken
from clawd.bench.ablate.records import Ended, Records
from clawd.bench.ablate.variants import Variant
from clawd.errors import BenchFailed
from tests.learner.parts import World

FOUND = Ended(Measured(0.3, 0.02, 0.05, Spoken(30.0, 0.25, 0.5), 20.0), None)
REFUSED = Ended(None, "too far")
VARIANT = Variant("x", {"loss.support_k": 2})


@pytest.fixture
def lessons(tmp_path: Path) -> list[Lesson]:
    world = World(tmp_path / "world")
    return [Lesson(world.store.turns.get(world.turn()), -1, _hints(0))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def never() -> list[Lesson]:
    raise AssertionError("made again")


def opened(folder: Path | None, lessons: list[Lesson], model: str = "m" * 64) -> Records:
    records = Records(folder, model)
    assert records.batch(lambda: lessons) == lessons
    return records


def counted(made: list[Ended], ended: Ended) -> Callable[[], Ended]:
    def make() -> Ended:
        made.append(ended)
        return ended

    return make


def test_the_batch_is_made_once(folder: Path, lessons: list[Lesson]) -> None:
    opened(folder, lessons)
    assert Records(folder, "m" * 64).batch(never) == lessons
    with pytest.raises(AssertionError, match="made again"):
        Records(folder, "n" * 64).batch(never)


@pytest.mark.parametrize("ended", [FOUND, REFUSED])
def test_what_ended_is_kept(folder: Path, lessons: list[Lesson], ended: Ended) -> None:
    made: list[Ended] = []
    for _ in range(2):
        assert opened(folder, lessons).ended(VARIANT, 0, counted(made, ended)) == ended
    assert made == [ended]


def test_other_settings_seeds_updates_models_and_batches_are_others(folder: Path, lessons: list[Lesson]) -> None:
    made: list[Ended] = []
    make = counted(made, FOUND)
    records = opened(folder, lessons)
    records.ended(VARIANT, 0, make)
    records.ended(VARIANT, 1, make)
    records.ended(Variant("x", {"loss.support_k": 8}), 0, make)
    records.ended(Variant("x", VARIANT.changes, updates=2), 0, make)
    opened(folder, lessons, model="n" * 64).ended(VARIANT, 0, make)
    assert len(made) == 5
    records.ended(Variant("of another name", VARIANT.changes, seeds=4), 0, make)
    assert len(made) == 5


def test_a_failure_is_tried_again(folder: Path, lessons: list[Lesson]) -> None:
    made: list[Ended] = []
    for _ in range(2):
        opened(folder, lessons).ended(VARIANT, 0, counted(made, Ended(None, "no memory", failed=True)))
    assert len(made) == 2


def test_without_a_folder_nothing_is_kept(lessons: list[Lesson]) -> None:
    made: list[Ended] = []
    records = opened(None, lessons)
    for _ in range(2):
        records.ended(VARIANT, 0, counted(made, FOUND))
    assert len(made) == 2


def test_a_damaged_file_is_named(folder: Path, lessons: list[Lesson]) -> None:
    opened(folder, lessons)
    (path,) = folder.iterdir()
    path.write_text("[")
    with pytest.raises(BenchFailed, match=path.name):
        Records(folder, "m" * 64).batch(never)
