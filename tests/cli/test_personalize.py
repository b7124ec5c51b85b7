"""What `clawd bench personalize` takes and refuses, before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bench.personalize.arms import ARMS
from clawd.cli.personalize import _arms
from tests.cli.command import clawd


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--arms", "hybrid,hybird"), "hybird"),
        (("--users", "doctor"), "student, ta, teacher"),
        (("--arms", ","), "No such arm"),
        (("--set", "learn.steps"), "KEY=VALUE"),
        (("--user-endpoint", "http://127.0.0.1:9/v1"), "--user-model"),
        (("--arms", "memory,memory-mem0", "--no-plot"), "10240"),  # the embedded model's context is too short
    ],
)
def test_wrong_options_are_told(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    done = clawd(tmp_path, "bench", "personalize", "--out", str(tmp_path / "out"), *arguments)
    assert done.returncode != 0
    assert says in done.stderr
    assert not (tmp_path / "out").exists()


def test_all_arms_are_those_that_need_no_further_extra() -> None:
    assert set(_arms("all")) == {name for name in ARMS if "mem0" not in name}
    assert _arms("memory-mem0") == ["memory-mem0"]
