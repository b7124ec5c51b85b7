"""What `clawd bench personalize` takes and refuses, before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import clawd


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--arms", "hybrid,hybird"), "hybird"),
        (("--users", "doctor"), "student, ta, teacher"),
        (("--arms", ","), "No such arm"),
        (("--set", "learn.steps"), "KEY=VALUE"),
        (("--user-endpoint", "http://127.0.0.1:9/v1"), "--user-model"),
    ],
)
def test_wrong_options_are_told(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    done = clawd(tmp_path, "bench", "personalize", "--out", str(tmp_path / "out"), *arguments)
    assert done.returncode != 0
    assert says in done.stderr
    assert not (tmp_path / "out").exists()
