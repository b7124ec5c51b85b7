from __future__ import annotations

import json
import tomllib
from pathlib import Path

from clawd.cli.settings import describe, to_toml
from clawd.config import ServerSettings, Settings
from clawd.errors import ConfigError
from tests.cli.command import clawd


def test_json_has_value_default_and_sentence(tmp_path: Path) -> None:
    (tmp_path / "clawd.toml").write_text("[server]\nport = 31000\n")
    done = clawd(tmp_path, "config", "--json", "--learn.enabled", "false", CLAWD_MODEL__THREADS="3")
    assert done.returncode == 0, done.stderr
    by_key = {setting["key"]: setting for setting in json.loads(done.stdout)}
    assert by_key["server.port"] == {
        "key": "server.port",
        "value": 31000,
        "default": 30000,
        "is_set": True,
        "environment": "CLAWD_SERVER__PORT",
        "sentence": ServerSettings.model_fields["port"].description,
    }
    assert by_key["learn.enabled"]["value"] is False
    assert by_key["model.threads"]["value"] == 3
    assert by_key["learn.lora.rank"]["is_set"] is False


def test_table_names_every_setting(tmp_path: Path) -> None:
    done = clawd(tmp_path, "config")
    assert done.returncode == 0, done.stderr
    for setting in describe(Settings()):
        assert setting.key in done.stdout
    assert str(tmp_path / "clawd.toml") in done.stdout


def test_toml_says_the_same_when_read_back(tmp_path: Path) -> None:
    first = clawd(
        tmp_path, "config", "--toml", "--server.port", "31000", "--model.path", '/a "b"\\c.gguf', "--learn.seed", "7"
    )
    (tmp_path / "clawd.toml").write_text(first.stdout)
    assert tomllib.loads(first.stdout) == {
        "model": {"path": '/a "b"\\c.gguf'},
        "server": {"port": 31000},
        "sessions": {},
        "judge": {},
        "learn": {"seed": 7, "lora": {}, "loss": {}, "gate": {}},
        "log": {},
        "daemon": {},
    }
    assert clawd(tmp_path, "config", "--toml").stdout == first.stdout


def test_each_commented_line_is_accepted_too(tmp_path: Path) -> None:
    """All but secrets, whose value isn't told."""
    text = to_toml(list(describe(Settings())))
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]
    (tmp_path / "clawd.toml").write_text("\n".join(line for line in lines if "api_key" not in line))
    done = clawd(tmp_path, "config", "--json")
    assert done.returncode == 0, done.stderr
    settings = json.loads(done.stdout)
    assert all(setting["value"] == setting["default"] for setting in settings)
    assert sum(setting["is_set"] for setting in settings) == len(settings) - 1


def test_secret_is_in_no_form_of_the_output(tmp_path: Path) -> None:
    for form in ([], ["--json"], ["--toml"]):
        done = clawd(tmp_path, "config", *form, CLAWD_JUDGE__API_KEY="hunter2")
        assert done.returncode == 0, done.stderr
        assert "hunter2" not in done.stdout + done.stderr
        assert "***" in done.stdout


def test_unknown_key_has_its_own_status(tmp_path: Path) -> None:
    for done in (clawd(tmp_path, "config", "--server.prot", "1"), clawd(tmp_path, "config", CLAWD_SRVER__PORT="1")):
        assert done.returncode == ConfigError.exit_status
        assert done.stderr.startswith("clawd: ")
        assert done.stdout == ""
