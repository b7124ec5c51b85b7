"""The daemon as a process of its own: signals, kills, a second one. Its children are tiny true programs."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clawd import errors
from clawd.daemon import control, record
from clawd.lifeline import PARENT_VARIABLE
from clawd.paths import DataFolder
from tests.cli.command import clawd
from tests.tiny_daemon import GRACE_S, is_gone, tiny_daemon, wait_for

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_everything_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with tiny_daemon(tmp_path) as daemon:
        found = daemon.wait_until_ready()
        daemon.process.send_signal(number)
        said = daemon.end_and_read()
        assert daemon.process.returncode == 0, said
        assert all(child.pid and is_gone(child.pid) for child in found.processes)
        assert record.running(daemon.folder) is None
        assert "server  | tiny server is up" in said
        assert "learner | waiting" in said
        assert "daemon  | ready after" in said


def test_child_that_ignores_term_is_killed_and_the_status_says_so(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path, "answers", "stubborn") as daemon:
        found = daemon.wait_until_ready()
        wait_for(lambda: "waiting" in (daemon.folder.logs / "learner.log").read_text(), "learner up")
        daemon.process.terminate()
        began = time.monotonic()
        said = daemon.end_and_read()
        assert GRACE_S < time.monotonic() - began < found.stop_within_s
        assert daemon.process.returncode == 1
        assert "learner didn't end in time: killed" in said
        assert all(child.pid and is_gone(child.pid) for child in found.processes)


def test_second_signal_ends_without_grace(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path, "answers", "stubborn") as daemon:
        daemon.wait_until_ready()
        wait_for(lambda: "waiting" in (daemon.folder.logs / "learner.log").read_text(), "learner up")
        daemon.process.terminate()
        time.sleep(0.5)
        began = time.monotonic()
        daemon.process.terminate()
        daemon.end_and_read()
        assert time.monotonic() - began < 1.0
        assert daemon.process.returncode == 1


def test_killed_daemon_takes_its_children_along_and_the_next_one_starts(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path, "answers", "parent") as daemon:
        found = daemon.wait_until_ready()
        learner_log = daemon.folder.logs / "learner.log"
        wait_for(lambda: "grandchild" in learner_log.read_text(), "grandchild up")
        mentioned = re.search(r"grandchild (\d+)", learner_log.read_text())
        assert mentioned
        pids = [child.pid for child in found.processes] + [int(mentioned[1])]
        assert not any(is_gone(pid) for pid in pids if pid)
        daemon.process.kill()
        wait_for(lambda: all(is_gone(pid) for pid in pids if pid), "children gone", timeout_s=2.0)
        assert daemon.folder.daemon_file.exists(), "nobody was left to remove it"
        assert record.running(daemon.folder) is None
    with tiny_daemon(tmp_path, "answers", "waits", str(found.port)) as daemon:
        assert daemon.wait_until_ready().port == found.port


def test_second_daemon_is_refused_at_once(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path) as first:
        found = first.wait_until_ready()
        with tiny_daemon(tmp_path) as second:
            said = second.end_and_read(timeout_s=5.0)
        assert second.process.returncode == errors.AlreadyRunning.exit_status
        assert f"Process {found.pid} at {found.url} holds the data folder" in said
        assert record.running(first.folder) == found


def test_taken_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        with tiny_daemon(tmp_path, "answers", "waits", str(other.getsockname()[1])) as daemon:
            said = daemon.end_and_read(timeout_s=5.0)
        assert daemon.process.returncode == errors.PortTaken.exit_status
        assert "--server.port" in said
        assert not (tmp_path / "logs" / "server.log").exists()


def test_incurable_error_is_the_daemons_own_status(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path, "no_model") as daemon:
        said = daemon.end_and_read(timeout_s=5.0)
        assert daemon.process.returncode == errors.ModelError.exit_status
        assert said.endswith("\nno such model: x.gguf\n")


def test_stop_waits_for_the_end(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path) as daemon:
        found = daemon.wait_until_ready()
        assert control.stop(daemon.folder)
        assert is_gone(found.pid)
        with pytest.raises(errors.NotRunning):
            control.stop(daemon.folder)


def test_stop_kills_a_daemon_that_hangs(tmp_path: Path) -> None:
    with tiny_daemon(tmp_path) as daemon:
        found = daemon.wait_until_ready()
        os.kill(found.pid, signal.SIGSTOP)
        assert not control.stop(daemon.folder)
        pids = [found.pid, *(child.pid for child in found.processes)]
        wait_for(lambda: all(is_gone(pid) for pid in pids if pid), "all gone", timeout_s=2.0)


def test_child_of_a_parent_that_is_gone_already_dies_at_once() -> None:
    """The race: the parent ends between the child's start and its prctl."""
    program = "from clawd.lifeline import die_with_parent; die_with_parent(); print('lived on')"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, PARENT_VARIABLE: "1"}, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == b""


def test_lifeline_is_not_inherited_by_name() -> None:
    program = f"""if True:
        import os
        from clawd.lifeline import die_with_parent, environment
        assert environment()[{PARENT_VARIABLE!r}] == str(os.getpid())
        die_with_parent()
        assert {PARENT_VARIABLE!r} not in os.environ
        print("lives")
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"lives\n"


def test_other_machines_are_let_in_with_a_key_only(tmp_path: Path) -> None:
    refused = clawd(tmp_path, "start", "--server.host", "0.0.0.0", "--server.port", "0")
    assert refused.returncode == errors.ConfigError.exit_status
    assert "clawd user add" in refused.stderr
    assert not DataFolder(tmp_path).owner_key_file.exists()
