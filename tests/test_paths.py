from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from clawd.errors import ConfigError, StoreError
from clawd.paths import DataFolder, write_privately


def test_home_holds_data_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWD_HOME", str(tmp_path / "x"))
    folder = DataFolder.default()
    assert folder.root == tmp_path / "x"
    assert folder.config_file == tmp_path / "x" / "clawd.toml"


def test_home_may_be_relative_or_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLAWD_HOME", "here")
    assert DataFolder.default().root == tmp_path / "here"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAWD_HOME", "~/there")
    assert DataFolder.default().root == tmp_path / "there"


def test_without_home_the_xdg_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAWD_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = DataFolder.default()
    assert folder.root == tmp_path / "data" / "clawd"
    assert folder.config_file == tmp_path / "config" / "clawd" / "clawd.toml"


def test_everything_lies_below_the_root_and_is_private(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "deep" / "root")
    folder.create()
    folder.create()
    made = [folder.root, folder.run, folder.logs, folder.jobs, folder.adapters, folder.cache]
    for path in made:
        assert path.is_relative_to(folder.root)
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for file in (folder.database, folder.lock_file, folder.settings_file, folder.daemon_file):
        assert file.parent in made


def test_written_privately_is_whole_or_untouched(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_privately(path, "first")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(UnicodeEncodeError):
        write_privately(path, "\ud800")
    assert path.read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


def test_a_folder_that_can_not_be_used_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(StoreError, match="CLAWD_HOME"):
            DataFolder(root).create()


def test_a_home_that_is_a_file_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CLAWD_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="CLAWD_HOME"):
        DataFolder.default()


def test_a_home_that_is_no_text_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWD_HOME", os.fsdecode(b"/tmp/h\xff"))
    with pytest.raises(ConfigError, match="UTF-8"):
        DataFolder.default()
