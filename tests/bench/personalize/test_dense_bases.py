"""Dense bases are made once in an experiment, and handed on whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bench.personalize.dense_bases import handed_on


def made(cache: Path, name: str, text: str = "weights") -> None:
    (cache / name).mkdir(parents=True)
    (cache / name / "model").write_text(text)


def contents(folder: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in folder.glob("*/model")}


def test_what_one_daemon_makes_the_next_one_finds(tmp_path: Path) -> None:
    kept, first, second = (tmp_path / name for name in ("kept", "first", "second"))
    second.mkdir()
    with handed_on(kept, first):
        made(first, "dense-a")
        made(first, "states")  # of conversations: nobody else's
    with handed_on(kept, second):
        assert contents(second) == {"dense-a": "weights"}
        made(second, "dense-b")
    assert contents(kept) == {"dense-a": "weights", "dense-b": "weights"}
    assert sorted(path.name for path in kept.iterdir()) == ["dense-a", "dense-b"]


def test_of_two_at_a_time_the_quicker_one_counts(tmp_path: Path) -> None:
    kept, first, second = (tmp_path / name for name in ("kept", "first", "second"))
    with handed_on(kept, first), handed_on(kept, second):
        made(first, "dense-a", "same")
        made(second, "dense-a", "same")
    assert contents(kept) == {"dense-a": "same"}


def test_a_failed_run_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), handed_on(tmp_path / "kept", tmp_path / "cache"):
        made(tmp_path / "cache", "dense-a")
        raise RuntimeError
    assert not (tmp_path / "kept").exists()


def test_what_cannot_be_kept_costs_no_run(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("no folder")
    with handed_on(tmp_path / "kept", tmp_path / "cache"):
        made(tmp_path / "cache", "dense-a")
    assert (tmp_path / "kept").read_text() == "no folder"
