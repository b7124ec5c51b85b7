from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from clawd.config import LearnSettings
from clawd.learner.backends import local
from clawd.learner.backends.local import LocalBackend
from clawd.presence import VARIABLE


def backend(tmp_path: Path, program: str, nice: int = 7) -> LocalBackend:
    return LocalBackend(tmp_path / "update.log", LearnSettings(nice=nice), command=(sys.executable, "-c", program))


def wait_for_end(run: local.LocalUpdate) -> str:
    deadline = time.monotonic() + 20
    while (ended := run.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return ended


def test_it_runs_the_command_on_the_job_folder_at_low_priority(tmp_path: Path) -> None:
    program = "import os, sys; print(sys.argv[1], os.getpriority(os.PRIO_PROCESS, 0)); sys.exit(3)"
    before = os.getpriority(os.PRIO_PROCESS, 0)
    run = backend(tmp_path, "import time; time.sleep(0.3); " + program).start(tmp_path / "job")
    assert wait_for_end(run) == "exit status 3"
    assert (tmp_path / "update.log").read_text() == f"{tmp_path / 'job'} 7\n"
    assert (tmp_path / "update.log").stat().st_mode & 0o777 == 0o600
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_it_tells_where_people_are_told_of(tmp_path: Path) -> None:
    program = f"import os; print(os.environ.get({VARIABLE!r}))"
    command = (sys.executable, "-c", program)
    wait_for_end(LocalBackend(tmp_path / "log", LearnSettings(), command, presence=tmp_path / "pipe").start(tmp_path))
    assert (tmp_path / "log").read_text() == f"{tmp_path / 'pipe'}\n"
    wait_for_end(LocalBackend(tmp_path / "other", LearnSettings(), command).start(tmp_path))
    assert (tmp_path / "other").read_text() == "None\n"


def test_cancelling_is_term_first(tmp_path: Path) -> None:
    run = backend(tmp_path, "import time; time.sleep(60)").start(tmp_path)
    assert run.poll() is None
    run.cancel()
    assert run.poll() == "signal SIGTERM"
    run.cancel()  # harmless


def test_and_kill_after_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "KILL_AFTER_S", 0.2)
    ready = tmp_path / "ready"
    program = (
        "import signal, sys, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    )
    run = backend(tmp_path, program).start(tmp_path)
    while not ready.exists():
        time.sleep(0.02)
    run.cancel()
    assert run.poll() == "signal SIGKILL"


def test_a_log_that_has_grown_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "KEEP_LOG_BYTES", 10)
    log = tmp_path / "update.log"
    log.write_text("x" * 11)
    wait_for_end(backend(tmp_path, "print('new')").start(tmp_path))
    assert log.read_text() == "new\n" and (tmp_path / "update.log.1").read_text() == "x" * 11


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend(tmp_path, "").unavailable() is None
    monkeypatch.setattr(local, "NEEDED", ("torch", "no_such_module"))
    assert "no_such_module can't be found" in (backend(tmp_path, "").unavailable() or "")
