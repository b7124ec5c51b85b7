"""The daemon in this process, ticked by hand under a clock that the test moves. Its children are real."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import stat
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd import errors
from clawd.config import take_over
from clawd.daemon import record
from clawd.daemon.child import Child, pause_s
from clawd.daemon.supervisor import FIRST_START_ATTEMPTS, Daemon
from clawd.paths import DataFolder
from tests.tiny_daemon import is_gone, processes, settings_for, wait_for


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A daemon and the clock it reads."""

    def __init__(self, home: Path, server: str = "answers", learner: str = "waits") -> None:
        self.folder = DataFolder(home)
        self.clock = Clock()
        self.daemon = Daemon(self.folder, settings_for(), processes(server, learner), clock=self.clock)

    def child(self, name: str) -> Child:
        return next(child for child in self.daemon.children if child.spec.name == name)

    def tick_until_ended(self, name: str) -> None:
        ends = self.child(name).failures

        def has_ended() -> bool:
            self.daemon.tick()
            return self.child(name).failures > ends or self.child(name).pid is None

        wait_for(has_ended, f"{name} ends")

    def tick_until_ready(self) -> None:
        def is_ready() -> bool:
            self.daemon.tick()
            return self.daemon.ready_at is not None and all(child.starts for child in self.daemon.children)

        wait_for(is_ready, "ready, learner started")


@contextlib.contextmanager
def bench(home: Path, server: str = "answers", learner: str = "waits") -> Iterator[Bench]:
    made = Bench(home, server, learner)
    try:
        made.daemon.start_up()
        yield made
    finally:
        made.daemon.shut_down()


@pytest.fixture
def no_service_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)


pytestmark = pytest.mark.usefixtures("no_service_manager")


def test_pauses_double_up_to_half_a_minute() -> None:
    assert [pause_s(failures) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_learner_waits_for_the_server(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.daemon.tick()
        assert b.child("server").starts == 1
        assert b.child("learner").starts == 0 or b.daemon.ready_at is not None
        b.tick_until_ready()
        assert b.child("learner").pid is not None


def test_crashed_child_is_restarted_after_growing_pauses(tmp_path: Path) -> None:
    with bench(tmp_path, learner="crashes") as b:
        b.tick_until_ready()
        learner = b.child("learner")
        for starts, pause in enumerate((1.0, 2.0, 4.0), start=1):
            b.tick_until_ended("learner")
            assert learner.starts == starts
            b.clock.now += pause - 0.1
            b.daemon.tick()
            assert learner.starts == starts, "too early"
            b.clock.now += 0.2
            b.daemon.tick()
            assert learner.starts == starts + 1
        assert learner.last_exit == 3
        assert learner.log.path.read_text().count("about to crash") >= 3


def test_a_minute_of_health_forgets_the_failures_before(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.tick_until_ready()
        learner = b.child("learner")
        for _ in range(3):
            assert learner.pid is not None
            os.kill(learner.pid, signal.SIGKILL)
            b.tick_until_ended("learner")
            b.clock.now += 31
            b.daemon.tick()
        assert learner.failures == 3
        b.clock.now += 61
        assert learner.pid is not None
        os.kill(learner.pid, signal.SIGKILL)
        b.tick_until_ended("learner")
        assert learner.failures == 1
        assert learner.last_exit == -signal.SIGKILL


def test_client_of_a_crashed_server_waits_and_is_answered(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.tick_until_ready()
        server = b.child("server")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        b.tick_until_ended("server")
        with socket.create_connection(("127.0.0.1", b.daemon.port), timeout=10) as caller:  # not refused
            caller.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            b.clock.now += 1
            b.daemon.tick()
            assert server.starts == 2
            assert caller.recv(100).startswith(b"HTTP/1.0 200")


@pytest.mark.parametrize("status", [66, 70, 74, 78])
def test_every_incurable_status_is_one_of_the_error_tree(status: int) -> None:
    from clawd.daemon.supervisor import INCURABLE

    assert INCURABLE[status].exit_status == status
    assert set(INCURABLE) == {66, 70, 74, 78}


def test_server_without_a_model_ends_the_daemon_with_its_words(tmp_path: Path) -> None:
    with bench(tmp_path, server="no_model") as b, pytest.raises(errors.ModelError) as caught:
        b.tick_until_ended("server")
    assert str(caught.value) == "no such model: x.gguf"


def test_server_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    with bench(tmp_path, server="crashes") as b:
        for failures in range(1, FIRST_START_ATTEMPTS):
            b.tick_until_ended("server")
            assert b.child("server").failures == failures
            b.clock.now += pause_s(failures)
            b.daemon.tick()
        with pytest.raises(errors.ProcessFailed, match="about to crash"):
            b.tick_until_ended("server")


def test_incurable_status_after_readiness_is_tried_again(tmp_path: Path) -> None:
    """A model file that is missing for a moment must not end a daemon that has served."""
    with bench(tmp_path) as b:
        b.tick_until_ready()
        server = b.child("server")
        server.spec = processes("no_model")(b.folder, 0)[0]
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        b.tick_until_ended("server")
        b.clock.now += 1
        b.daemon.tick()
        b.tick_until_ended("server")
        assert server.last_exit == 66


def test_second_daemon_on_the_folder_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        second = Daemon(b.folder, settings_for(), processes())
        with pytest.raises(errors.AlreadyRunning, match=str(os.getpid())):
            second.run()
        found = record.running(b.folder)
        assert found is not None
        assert found.pid == os.getpid()
        assert take_over(b.folder.settings_file) == settings_for()
    assert record.running(b.folder) is None


def test_port_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        daemon = Daemon(DataFolder(tmp_path), settings_for(port), processes())
        with pytest.raises(errors.PortTaken, match=str(port)):
            daemon.run()
    assert daemon.children == []
    assert record.running(DataFolder(tmp_path)) is None
    with bench(tmp_path):  # the lock was given back
        pass


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "::ffff:g"])
def test_address_that_is_not_ours_is_a_config_error(tmp_path: Path, host: str) -> None:
    settings = settings_for().model_copy(update={"server": settings_for().server.model_copy(update={"host": host})})
    with pytest.raises(errors.ConfigError, match=r"server\.host"):
        Daemon(DataFolder(tmp_path), settings, processes()).run()


def test_record_tells_where_and_who(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.tick_until_ready()
        found = record.running(b.folder)
        assert found is not None
        assert found.port == b.daemon.port != 0
        assert found.url == f"http://127.0.0.1:{found.port}"
        assert found.ready_at is not None
        assert found.ready_at >= found.started_at
        assert [(child.name, child.state) for child in found.processes] == [
            ("server", "running"),
            ("learner", "running"),
        ]
        with urllib.request.urlopen(f"{found.url}/readyz") as answer:
            assert answer.status == 200


def test_nothing_in_the_folder_is_for_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    before = os.umask(0o022)
    try:
        with bench(home) as b:
            b.tick_until_ready()
            paths = [home, *home.rglob("*")]
            assert b.folder.settings_file in paths
            for path in paths:
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
        assert os.umask(0o022) == 0o022  # the caller's own is back
    finally:
        os.umask(before)


def test_end_leaves_no_process_no_handler_and_no_secret(tmp_path: Path) -> None:
    handlers = list(logging.getLogger("clawd").handlers)
    with bench(tmp_path) as b:
        b.tick_until_ready()
        pids = [child.pid for child in b.daemon.children]
        port = b.daemon.port
    assert all(pid is not None and is_gone(pid) for pid in pids)
    assert not b.folder.settings_file.exists()
    assert not b.folder.daemon_file.exists()
    assert logging.getLogger("clawd").handlers == handlers
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


class TestRecord:
    def make(self, **changes: object) -> record.DaemonRecord:
        values = {
            "pid": os.getpid(),
            "pid_started": record.process_started(os.getpid()),
            "started_at": 1.0,
            "ready_at": None,
            "host": "127.0.0.1",
            "port": 1,
            "url": "http://127.0.0.1:1",
            "version": "0",
            "stop_within_s": 1.0,
            "processes": [],
        }
        return record.DaemonRecord.model_validate({**values, **changes})

    @pytest.fixture
    def folder(self, tmp_path: Path) -> DataFolder:
        folder = DataFolder(tmp_path)
        folder.create()
        return folder

    def test_is_believed_while_its_process_lives(self, folder: DataFolder) -> None:
        record.write(folder, self.make())
        assert record.running(folder) == self.make()

    def test_of_a_reused_pid_is_stale(self, folder: DataFolder) -> None:
        record.write(folder, self.make(pid_started=1))
        assert record.running(folder) is None

    def test_of_a_dead_process_is_stale(self, folder: DataFolder) -> None:
        record.write(folder, self.make(pid=2**22 + 1))  # above the largest pid that Linux gives
        assert record.running(folder) is None

    @pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"pid": 1}'])
    def test_that_cant_be_read_is_none(self, folder: DataFolder, content: bytes) -> None:
        folder.daemon_file.write_bytes(content)
        assert record.running(folder) is None

    def test_none_in_a_folder_that_isnt_there(self, tmp_path: Path) -> None:
        assert record.running(DataFolder(tmp_path / "nowhere")) is None
