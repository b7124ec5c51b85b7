from __future__ import annotations

import stat
from pathlib import Path

from clawd.paths import DataFolder
from clawd.store import Store
from tests.cli.command import clawd


def test_key_is_told_once_and_opens_the_door(tmp_path: Path) -> None:
    done = clawd(tmp_path, "user", "add", "ann")
    assert done.returncode == 0, done.stderr
    key = done.stdout.strip()
    with Store(DataFolder(tmp_path).database) as store:
        user = store.people.with_key(key)
    assert user is not None
    assert user.name == "ann"
    listed = clawd(tmp_path, "user", "list")
    assert "ann" in listed.stdout
    assert key not in listed.stdout
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert key.encode() not in file.read_bytes()
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


def test_name_that_is_taken_or_no_name(tmp_path: Path) -> None:
    clawd(tmp_path, "user", "add", "ann")
    for name in ("ann", "../../x", "a/b", ""):
        done = clawd(tmp_path, "user", "add", name)
        assert done.returncode == 1
        assert done.stderr.startswith("clawd: ")
        assert done.stdout == ""
