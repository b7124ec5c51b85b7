"""start, stop and status from the command line; the daemon beneath has tiny children (the real ones: tests/e2e)."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

from clawd import __version__, errors
from clawd.cli import status_view
from clawd.cli.status_view import Status, duration
from clawd.paths import DataFolder
from tests.cli.command import clawd
from tests.tiny_daemon import tiny_daemon, wait_for


def test_version_and_help(tmp_path: Path) -> None:
    assert clawd(tmp_path, "--version").stdout == f"clawd {__version__}\n"
    for flag in ("-h", "--help"):
        done = clawd(tmp_path, "start", flag)
        assert done.returncode == 0
        assert "--server.port 31000" in done.stdout
        assert "clawd config" in done.stdout
    assert {"start", "stop", "status", "config", "user"} <= set(clawd(tmp_path, "--help").stdout.split())


def test_nothing_runs(tmp_path: Path) -> None:
    for arguments in (["status"], ["status", "--json"], ["stop"]):
        assert clawd(tmp_path, *arguments).returncode == errors.NotRunning.exit_status
    assert "`clawd start`" in clawd(tmp_path, "status").stdout, "a command to copy is not broken into two lines"
    told = json.loads(clawd(tmp_path, "status", "--json").stdout)
    assert told["running"] is False
    assert told["server"] is None
    assert not any(tmp_path.iterdir()), "asking makes nothing"


def test_start_refuses_bad_settings_before_anything_else(tmp_path: Path) -> None:
    for flags in (["--server.prot", "1"], ["--server.port", "x"], ["stray"], ["--detach", "--server.prot", "1"]):
        done = clawd(tmp_path, "start", *flags)
        assert done.returncode == errors.ConfigError.exit_status
    assert not any(tmp_path.iterdir())


def test_detached_start_brings_back_why_it_failed(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path) as other:
        found = other.wait_until_ready()
        done = clawd(tmp_path, "start", "--detach")
        assert done.returncode == errors.AlreadyRunning.exit_status
        assert f"Process {found.pid}" in done.stderr
        assert done.stderr.count("clawd: ") == 1
        home = tmp_path.with_name(tmp_path.name + "-2")
        done = clawd(home, "start", "--detach", "--server.port", str(found.port))
        assert done.returncode == errors.PortTaken.exit_status
        assert "--server.port" in done.stderr


def test_status_and_stop_of_a_running_one(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path) as daemon:
        found = daemon.wait_until_ready()
        done = clawd(tmp_path, "status", "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["running"], told["ready"], told["pid"], told["url"]) == (True, True, found.pid, found.url)
        assert told["server"] == {"served": "nothing"}
        assert told["trouble"] is None
        assert [process["name"] for process in told["processes"]] == ["server", "learner"]
        shown = clawd(tmp_path, "status")
        assert shown.returncode == 0
        assert found.url in shown.stdout
        stopped = clawd(tmp_path, "stop")
        assert stopped.returncode == 0, stopped.stderr
        assert daemon.process.wait(timeout=5) == 0
        assert clawd(tmp_path, "status").returncode == errors.NotRunning.exit_status


def test_status_while_the_server_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_view, "TIMEOUT_S", 0.3)
    with tiny_daemon(tmp_path) as daemon:
        found = daemon.wait_until_ready()
        server = found.processes[0]
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        status = status_view.look(daemon.folder)
        assert status.running
        assert not status.ready
        assert status.server is None
        assert status.trouble is not None
        os.kill(server.pid, signal.SIGKILL)
        wait_for(lambda: status_view.look(daemon.folder).ready, "the server is back")
        restarted = status_view.look(daemon.folder).daemon
        assert restarted is not None
        assert (restarted.processes[0].restarts, restarted.processes[0].last_exit) == (1, -signal.SIGKILL)


SERVER = {
    "model": {"name": "SmolLM2", "path": "/m.gguf", "context_tokens": 8192},
    "engine": {"running": 1, "waiting": 0, "paused": 2},
    "judge": {"kind": "rules", "note": "the embedded model can't judge"},
    "sessions": {"by_evidence": {"header": 2}},
    "turns": {"main": {"sampled": 5, "discarded: no signal": 3}, "side": 4},
    "adapters": [
        {
            "name": "default",
            "active_version": 1,
            "samples": {"waiting": 5, "used": 16},
            "samples_waiting": 5,
            "samples_needed": 16,
            "turns": {"sampled": 5},
            "scored": 29,
            "not_scored": {"no next state yet": 2, "being judged": 1},
            "last_update": {"number": 1, "state": "active", "reason": None},
            "waits_for": "11 more judged turns with a signal",
        },
        {"name": "[red]", "active_version": None, "samples": {}, "samples_needed": 16, "last_update": None},
    ],
    "ignored_fields": {},
}


def test_view_shows_what_the_server_has(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path) as daemon:
        found = daemon.wait_until_ready()
    terminal = io.StringIO()
    status_view.show(Status(DataFolder(tmp_path), found, True, SERVER, None), Console(file=terminal, width=200))
    text = terminal.getvalue()
    for part in (
        "SmolLM2; /m.gguf; 8192 tokens of context",
        "1 running; 0 waiting; 2 paused",
        "2 header",
        "5 sampled, 3 discarded: no signal; 4 side turns, not learnt from",
        "rules; the embedded model can't judge",
        "v1",
        "5/16",
        "1 active",
        "11 more judged turns with a signal",
        "the bare base",
        "0/16",
        "none yet",
        "[red]",
    ):
        assert part in text, part
    assert "ignored fields" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "59 min"), (3660, "1 h 1 min"), (200_000, "2 d 7 h")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
