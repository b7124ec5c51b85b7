"""`clawd connect openclaw` as a person runs it, against a daemon that says what it serves."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd import errors
from clawd.paths import DataFolder
from clawd.store import Store
from tests.cli.command import clawd
from tests.tiny_daemon import tiny_daemon

OLD = "{\n  // mine\n  channels: { telegram: { botToken: 'top-secret' } },\n}\n"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    with tiny_daemon(folder, "tells_model") as daemon:
        daemon.wait_until_ready()
        yield folder


def entry_of(path: Path) -> dict:
    return json.loads(path.read_text())["models"]["providers"]["clawd"]


def test_the_entry_is_written_with_a_copy_of_the_old_file(home: Path, tmp_path: Path) -> None:
    config = tmp_path / "openclaw.json"
    config.write_text(OLD)
    config.chmod(0o640)
    dry = clawd(home, "connect", "openclaw", "--config", str(config), "--dry-run", "--user", "ann")
    assert dry.returncode == 0, dry.stderr
    assert config.read_text() == OLD
    assert any(line.startswith("+") and '"clawd": {' in line for line in dry.stdout.splitlines())
    assert "top-secret" not in dry.stdout
    assert "8192" in dry.stderr and "--lean" in dry.stderr
    with Store(DataFolder(home).database) as store:
        assert [user.name for user in store.people.all()] == ["default"]

    done = clawd(home, "connect", "openclaw", "--config", str(config), "--user", "ann", "--lean")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    text = config.read_text()
    assert "// mine" in text and "botToken: 'top-secret'" in text
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    copy = next(tmp_path.glob("openclaw.json.before-clawd-*"))
    assert copy.read_text() == OLD
    key = text.partition('"apiKey": "')[2].partition('"')[0]
    assert key not in done.stdout
    with Store(DataFolder(home).database) as store:
        assert store.people.with_key(key).name == "ann"

    again = clawd(home, "connect", "openclaw", "--config", str(config), "--user", "ann", "--lean")
    assert "already" in again.stdout
    other = clawd(home, "connect", "openclaw", "--config", str(tmp_path / "new.json"))
    assert other.returncode == errors.ConfigError.exit_status
    assert "--user" in other.stderr


def test_without_keyed_users_any_key_will_do(home: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    done = clawd(home, "connect", "openclaw", OPENCLAW_STATE_DIR=str(state))
    assert done.returncode == 0, done.stderr
    assert "openclaw models set clawd/clawd" in done.stdout
    entry = entry_of(state / "openclaw.json")
    assert entry["apiKey"] == "clawd"
    assert entry["baseUrl"].startswith("http://127.0.0.1:")
    assert stat.S_IMODE((state / "openclaw.json").stat().st_mode) == 0o600
    assert entry["models"][0]["contextWindow"] == 8192


def test_a_damaged_config_changes_nothing(home: Path, tmp_path: Path) -> None:
    config = tmp_path / "openclaw.json"
    config.write_text("{ models: ")
    done = clawd(home, "connect", "openclaw", "--config", str(config), "--user", "ann")
    assert done.returncode == errors.ConfigError.exit_status
    assert config.read_text() == "{ models: "
    with Store(DataFolder(home).database) as store:
        assert [user.name for user in store.people.all()] == ["default"]


def test_nothing_is_written_while_nothing_serves(tmp_path: Path) -> None:
    config = tmp_path / "openclaw.json"
    done = clawd(tmp_path / "home", "connect", "openclaw", "--config", str(config))
    assert done.returncode == errors.NotRunning.exit_status
    assert "clawd start" in done.stderr
    assert not config.exists()
