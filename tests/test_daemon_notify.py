"""What a service manager hears, over a real datagram socket."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.daemon.notify import Notifier
from clawd.daemon.supervisor import Daemon
from clawd.paths import DataFolder
from tests.tiny_daemon import processes, settings_for, wait_for


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield receiver


def heard(manager: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(manager.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_ready_after_the_first_answer_and_stopping_at_the_end(tmp_path: Path, manager: socket.socket) -> None:
    daemon = Daemon(DataFolder(tmp_path / "home"), settings_for(), processes())
    assert "NOTIFY_SOCKET" not in os.environ, "a child would speak in the daemon's name"
    try:
        daemon.start_up()
        assert heard(manager) == []

        def is_ready() -> bool:
            daemon.tick()
            return daemon.ready_at is not None

        wait_for(is_ready, "ready")
        assert heard(manager) == [f"READY=1\nSTATUS=serving on {daemon.url}"]
    finally:
        daemon.shut_down()
    (message,) = heard(manager)
    assert message == "STOPPING=1\nEXTEND_TIMEOUT_USEC=6300000"  # grace 0.3 s, twice 3 s for what is left


def test_watchdog_is_fed_while_the_server_answers(
    tmp_path: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    daemon = Daemon(DataFolder(tmp_path / "home"), settings_for(), processes())
    try:
        daemon.start_up()

        def is_fed() -> bool:
            daemon.tick()
            return "WATCHDOG=1" in heard(manager)

        wait_for(is_fed, "first ping")
        wait_for(is_fed, "second ping")
        pid = daemon.children[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # hangs: it lives, but doesn't answer
        heard(manager)
        time.sleep(0.1)
        daemon.tick()
        assert heard(manager) == []
        os.kill(pid, signal.SIGCONT)
        wait_for(is_fed, "ping after it answers again")
    finally:
        daemon.shut_down()


def test_watchdog_of_another_process_is_not_ours(manager: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": os.environ["NOTIFY_SOCKET"], "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
    assert Notifier(environ).watchdog_s is None
    assert environ == {}


def test_abstract_address() -> None:
    name = f"clawd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).alive()
        assert receiver.recv(100) == b"WATCHDOG=1"


def test_without_a_socket_nothing_happens() -> None:
    notifier = Notifier({"WATCHDOG_USEC": "1000000"})
    assert notifier.watchdog_s is None
    notifier.ready("x")
    notifier.stopping(1.0)
    notifier.alive()


def test_deaf_service_manager_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).alive()
    assert "can't be told 'WATCHDOG=1'" in caplog.text
