"""learn report, as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

from clawd.paths import DataFolder
from clawd.store import Store
from tests.cli.command import clawd
from tests.store.world import World


def filled(home: Path) -> None:
    folder = DataFolder(home)
    folder.create()
    with Store(folder.database) as store:
        world = World(store)
        for reward in (1, -1, -1):
            world.sample(reward)  # type: ignore[arg-type]


def test_a_table_and_a_verdict(tmp_path: Path) -> None:
    filled(tmp_path)
    done = clawd(tmp_path, "learn", "report")
    assert done.returncode == 0, done.stderr
    assert "33%" in done.stdout
    assert "0.67 a session" in done.stdout
    assert "Can't be told yet" in done.stdout


def test_json(tmp_path: Path) -> None:
    filled(tmp_path)
    told = json.loads(clawd(tmp_path, "learn", "report", "default", "--json").stdout)
    (base,) = told["versions"]
    assert (base["name"], base["sessions"], base["satisfied"]) == ("base", 3, 1)
    assert base["low"] < base["rate"] < base["high"]


def test_an_adapter_that_is_not_there(tmp_path: Path) -> None:
    done = clawd(tmp_path, "learn", "report", "nobody")
    assert done.returncode != 0
    assert "nobody" in done.stderr
