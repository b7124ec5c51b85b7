"""`clawd adapter …` and `clawd train --now` while a real daemon runs: live, and still so after a restart (A9)."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from clawd.daemon import record
from clawd.paths import DataFolder
from clawd.store import Store
from tests.adapter_files import base_of, served
from tests.cli.command import clawd, detached_daemon
from tests.store.world import World

pytestmark = pytest.mark.e2e


def answers_with(home: Path, model: str = "clawd") -> str:
    found = record.running(DataFolder(home))
    assert found is not None
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    response = httpx.post(f"{found.url}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["system_fingerprint"].split("-")[1]


def run(home: Path, *arguments: str, status: int = 0) -> str:
    done = clawd(home, *arguments)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_switching_by_command(tmp_path: Path, tiny_model: Path) -> None:
    data = DataFolder(tmp_path)
    data.create()
    with Store(data.database) as store:
        user = store.people.named("default")
        base = base_of(tiny_model, data.cache)
        for seed in range(3):
            served(data, store, user, base, seed)
        sample = World(store)
        sample_turn = sample.turn(base=base.fingerprint)
        store.turns.give_next_state(sample_turn, sample_turn, [{"role": "user", "content": "No."}])
        store.signals.settle(sample_turn, [], -1)

    flags = ("--model.path", str(tiny_model), "--learn.when", "manual")
    with detached_daemon(tmp_path, *flags):
        pid = record.running(data).processes[0].pid
        assert answers_with(tmp_path) == "v3"
        run(tmp_path, "adapter", "use", "default:v1")
        assert answers_with(tmp_path) == "v1"
        assert "version 2 instead of version 3" in (
            run(tmp_path, "adapter", "use", "default:v3") + run(tmp_path, "adapter", "rollback", "default")
        )
        assert answers_with(tmp_path) == "v2"
        run(tmp_path, "adapter", "create", "lab", "--from", "default:v3", "--user", "default")
        assert answers_with(tmp_path, "clawd@lab") == "v1"
        run(tmp_path, "adapter", "rm", "lab", "--yes")
        exported = tmp_path / "v3.zip"
        run(tmp_path, "adapter", "export", "default:v3", str(exported))
        assert "clawd@default:v4" in run(tmp_path, "adapter", "import", str(exported), "default", "--use")
        assert answers_with(tmp_path) == "v4"
        file = data.adapters / user.adapter.id / "v0001" / "adapter.gguf"
        file.write_bytes(b"torn")
        assert "has changed since it was staged" in run(tmp_path, "adapter", "use", "default:v1", status=1)
        assert answers_with(tmp_path) == "v4"
        (told,) = json.loads(run(tmp_path, "adapter", "list", "--json"))
        assert (told["serves"], told["trouble"]) == (4, None)
        assert record.running(data).processes[0].pid == pid  # nothing was restarted for it

        run(tmp_path, "adapter", "use", "default:v2")
        assert "update 5 of default has begun with 1 of 1 samples" in run(tmp_path, "train", "--now")
        run(tmp_path, "adapter", "use", "default:base")  # overtakes it
        assert answers_with(tmp_path) == "base"
    run(tmp_path, "adapter", "use", "default:v2")
    with detached_daemon(tmp_path, *flags):
        assert answers_with(tmp_path) == "v2"
        assert "no sample that waits" not in run(tmp_path, "train", "--dry-run")
    with Store(data.database) as store:
        assert store.verify() == []
