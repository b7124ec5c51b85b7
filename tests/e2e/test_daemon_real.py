"""The daemon with its real server and learner on the embedded model, driven as a person drives it."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from clawd import errors
from clawd.cli import status_view
from clawd.paths import DataFolder
from tests.cli.command import clawd, detached_daemon
from tests.tiny_daemon import is_gone, wait_for

pytestmark = pytest.mark.e2e


@dataclass
class Running:
    home: Path
    started: str  # what `clawd start --detach` printed

    def status(self) -> dict[str, Any]:
        return status_view.look(DataFolder(self.home)).as_object()

    def pids(self) -> dict[str, int]:
        return {process["name"]: process["pid"] for process in self.status()["processes"] if process["pid"]}

    def chat(self, **fields: Any) -> httpx.Response:
        body = {"model": "clawd", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, **fields}
        return httpx.post(f"{self.status()['url']}/v1/chat/completions", json=body, timeout=60)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("home")
    with detached_daemon(home) as started:
        yield Running(home, started)
        stopped = clawd(home, "stop")
        assert stopped.returncode == 0, stopped.stderr + (home / "logs" / "daemon.log").read_text()


def test_it_is_ready_when_start_returns(running: Running) -> None:
    told = running.status()
    assert f"clawd is ready at {told['url']}/v1" in running.started
    assert (told["running"], told["ready"], told["trouble"]) == (True, True, None)
    answer = running.chat()
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"]


def test_neither_server_nor_learner_loads_torch(running: Running) -> None:
    running.chat()
    wait_for(lambda: "learner" in running.pids(), "learner up")
    for name, pid in running.pids().items():
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text(), name
    assert "libllama" in Path(f"/proc/{running.pids()['server']}/maps").read_text()


def test_status_tells_what_is_served_and_what_is_waited_for(running: Running) -> None:
    done = clawd(running.home, "status", "--json")
    assert done.returncode == 0, done.stderr
    server = json.loads(done.stdout)["server"]
    assert server["model"]["embedded"] is True
    assert server["judge"]["note"]
    (adapter,) = server["adapters"]
    assert adapter["waits_for"].startswith("16 more")
    shown = clawd(running.home, "status").stdout
    for part in (server["model"]["name"], server["judge"]["kind"], "default", "0/16", "16 more"):
        assert part in shown


def test_second_daemon_is_refused_before_it_loads_anything(running: Running) -> None:
    began = time.monotonic()
    done = clawd(running.home, "start", "--server.port", "0")
    assert done.returncode == errors.AlreadyRunning.exit_status
    assert time.monotonic() - began < 5.0
    port = running.status()["url"].rpartition(":")[2]
    other = running.home.with_name(running.home.name + "-other")
    done = clawd(other, "start", "--server.port", port)
    assert done.returncode == errors.PortTaken.exit_status
    assert not (other / "logs" / "server.log").exists()
    assert running.chat().status_code == 200


def test_crashed_server_comes_back_and_no_caller_is_refused(running: Running) -> None:
    told = running.status()
    server = running.pids()["server"]
    os.kill(server, signal.SIGKILL)
    with urllib.request.urlopen(f"{told['url']}/readyz", timeout=60) as answer:  # waits in the backlog
        assert answer.status == 200
    after = next(process for process in running.status()["processes"] if process["name"] == "server")
    assert after["pid"] != server
    assert (after["restarts"], after["last_exit"]) == (1, -signal.SIGKILL)
    assert running.chat().status_code == 200


def test_crashed_learner_comes_back(running: Running) -> None:
    wait_for(lambda: "learner" in running.pids(), "learner up")
    learner = running.pids()["learner"]
    os.kill(learner, signal.SIGKILL)
    wait_for(lambda: running.pids().get("learner", learner) != learner, "another learner", timeout_s=30)
    assert running.chat().status_code == 200


def test_nothing_it_wrote_is_for_others(running: Running) -> None:
    for path in running.home.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_killed_daemon_leaves_nobody_and_the_next_one_starts(tmp_path: Path) -> None:
    with detached_daemon(tmp_path) as started:
        daemon = Running(tmp_path, started)
        told = daemon.status()
        pids = list(daemon.pids().values())
        os.kill(told["pid"], signal.SIGKILL)
        wait_for(lambda: all(map(is_gone, pids)), "children gone", timeout_s=2.0)
        assert clawd(tmp_path, "status").returncode == errors.NotRunning.exit_status
    with detached_daemon(tmp_path, "--server.port", told["url"].rpartition(":")[2]):
        assert daemon.status()["url"] == told["url"]


def test_missing_model_is_told_with_its_status(tmp_path: Path) -> None:
    done = clawd(tmp_path, "start", "--detach", "--server.port", "0", "--model.path", "/nowhere/x.gguf")
    assert done.returncode == errors.ModelError.exit_status
    assert re.search(r"^clawd: .*/nowhere/x\.gguf", done.stderr)
