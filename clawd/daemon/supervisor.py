"""The daemon: start up, tick, shut down.

Guarantees: one daemon per data folder; the port is held from before the model loads until the end, so that no client of
a restarting server is refused; a child that ends is started again; no child outlives the daemon, whatever ends it; the
exit status tells the truth. Not guaranteed: that a child which lives also works; that is the service manager's
watchdog, which is fed only while the server answers.

    exit 0    asked to stop, and everything ended in time
    exit 1    asked to stop, but a child had to be killed
    others    `exit_status` of the error that ended it
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from filelock import FileLock, Timeout

from clawd import __version__, config, errors
from clawd.config import Settings
from clawd.daemon import address, record
from clawd.daemon.child import Child, ChildSpec, describe_exit
from clawd.daemon.logs import ChildLog, last_words, line_prefix, rotate
from clawd.daemon.notify import Notifier
from clawd.loopback import is_loopback
from clawd.paths import DataFolder, write_privately

log = logging.getLogger(__name__)

SERVER = "server"
LEARNER = "learner"
TICK_S = 0.2
READY_PROBE_S = 0.5  # a server that is loading lets callers wait: this long, then the tick goes on
HEALTH_PROBE_S = 2.0
KILL_MARGIN_S = 3.0  # after the requests' grace: for the server to close what is left, before KILL
FIRST_START_ATTEMPTS = 5

INCURABLE: dict[int, type[errors.ClawdError]] = {
    kind.exit_status: kind for kind in (errors.ConfigError, errors.ModelError, errors.BindingError, errors.StoreError)
}
"""Exit statuses of the server that no second start cures."""

Processes = Callable[[DataFolder, int], Sequence[ChildSpec]]


def clawd_processes(folder: DataFolder, descriptor: int) -> list[ChildSpec]:
    """The server, which gets the listening socket `descriptor`, and the learner."""
    home = ("--home", str(folder.root))
    return [
        ChildSpec(
            SERVER, (sys.executable, "-m", "clawd.server", *home, "--fd", str(descriptor)), descriptors=(descriptor,)
        ),
        # After the server: it makes the tables, and its model loads faster alone.
        ChildSpec(LEARNER, (sys.executable, "-m", "clawd.learner", *home), after_ready=True),
    ]


@contextmanager
def _signals_only_set_flags(daemon: Daemon) -> Iterator[None]:
    """TERM, INT and HUP ask for the end; a second one, for an end without grace."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        daemon.should_kill = daemon.should_exit
        daemon.should_exit = True

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def require_key_beyond_loopback(folder: DataFolder, settings: Settings) -> None:
    """Other machines get in with a key only, so there must be one.

    Raises:
        ConfigError: the address isn't this machine's alone, and no user has a key.
        StoreError: the database can't be used.
    """
    host = settings.server.host
    if is_loopback(host):
        return
    from clawd.store import Store  # noqa: PLC0415  the daemon stays small unless it must look

    with Store(folder.database) as store:
        if not any(user.has_key for user in store.people.all()):
            raise errors.ConfigError(
                f"server.host = {host} lets other machines in, and no user has a key yet: make one with "
                "`clawd user add NAME`, or listen on 127.0.0.1."
            )


class Daemon:
    def __init__(
        self,
        folder: DataFolder,
        settings: Settings,
        processes: Processes = clawd_processes,
        terminal: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`processes`: one of them is called `server`. `terminal`: where their output is shown; none: in files only."""
        self.should_exit = False
        self.should_kill = False
        self.ready_at: float | None = None  # Unix seconds
        self.children: list[Child] = []
        self._folder = folder
        self._settings = settings
        self._processes = processes
        self._terminal = terminal
        self._clock = clock
        self._notifier = Notifier()
        self._held = ExitStack()  # the lock, and what must be given back with it
        self._listener: socket.socket | None = None
        self._server_up = False  # the present server process has answered /readyz
        self._owner_key = secrets.token_urlsafe(32)
        self._ping_due = 0.0
        self._started_at = 0.0

    def run(self) -> int:
        """From start up to shut down; the exit status.

        Raises:
            ClawdError: it can't start, or can't go on. Everything has been ended by then.
        """
        with _signals_only_set_flags(self):
            try:
                self.start_up()
                while not self.should_exit:
                    self.tick()
                    time.sleep(TICK_S)
            finally:
                clean = self.shut_down()
        return 0 if clean else 1

    def start_up(self) -> None:
        """Take the folder and the port, write down who we are. Loads nothing, starts nothing.

        Raises:
            AlreadyRunning, PortTaken, ConfigError: see there.
        """
        self._held.callback(os.umask, os.umask(0o077))  # conversations and keys lie in the files of all processes
        self._folder.create()
        self._lock()
        self._log_to(logging.FileHandler(self._open_own_log()), "%(asctime)s %(levelname)s %(message)s")
        if self._terminal is not None:
            self._log_to(logging.StreamHandler(self._terminal), line_prefix("daemon") + "%(message)s")
        require_key_beyond_loopback(self._folder, self._settings)
        self._listener = address.listen(self._settings.server.host, self._settings.server.port)
        self._held.callback(self._listener.close)
        self._started_at = time.time()
        config.hand_over(self._settings, self._folder.settings_file)
        write_privately(self._folder.owner_key_file, self._owner_key)
        self._held.callback(record.remove, self._folder)
        for spec in self._processes(self._folder, self._listener.fileno()):
            child_log = ChildLog(self._folder.logs / f"{spec.name}.log", spec.name, self._terminal)
            self.children.append(Child(spec, child_log))
        self._write_record()
        log.info("clawd %s on %s, data in %s", __version__, self.url, self._folder.root)

    @property
    def port(self) -> int:
        """The real one, also if the setting is 0."""
        assert self._listener is not None, "before start_up"
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return address.url_of(self._settings.server.host, self.port)

    def _answers(self, path: str, timeout_s: float) -> bool:
        return address.answers(self._settings.server.host, self.port, path, timeout_s, self._owner_key)

    def tick(self) -> None:
        """Do what is due, then return: reap, restart, ask the server whether it is ready, feed the watchdog.

        Raises:
            ClawdError: the server can't be started at all.
        """
        now = self._clock()
        for child in self.children:
            child.log.show()
            status = child.reap(now)
            if status is not None:
                self._on_end(child, status)
            if child.is_due(now) and (self.ready_at is not None or not child.spec.after_ready):
                child.start(now)
                self._write_record()
        self._look_for_readiness()
        self._feed_watchdog(now)

    def shut_down(self) -> bool:
        """End every child: TERM, the grace time, KILL. Whether none had to be killed. Harmless before `start_up`."""
        self._notifier.stopping(self._stop_within_s)
        if self._listener is not None:
            self._listener.close()  # new callers are refused from here on; the server finishes what it has
        for child in self.children:
            child.signal(signal.SIGTERM)
        clean = self._wait_for_children(self._clock() + self._settings.daemon.grace_s + KILL_MARGIN_S)
        for child in self.children:
            if child.pid is not None:
                log.error("%s didn't end in time: killed", child.spec.name)
                child.signal(signal.SIGKILL)
        self._wait_for_children(self._clock() + KILL_MARGIN_S)
        self._held.close()
        return clean

    def _lock(self) -> None:
        lock = FileLock(self._folder.lock_file, timeout=0, mode=0o600)
        try:
            lock.acquire()
        except Timeout:
            other = record.running(self._folder)
            which = f"Process {other.pid} at {other.url}" if other else "Another daemon"
            raise errors.AlreadyRunning(
                f"{which} holds the data folder {self._folder.root}: stop it with `clawd stop`, "
                "or give this one a folder of its own with CLAWD_HOME."
            ) from None
        self._held.callback(lock.release)

    def _open_own_log(self) -> Path:
        path = self._folder.logs / "daemon.log"
        rotate(path)
        return path

    def _log_to(self, handler: logging.Handler, layout: str) -> None:
        handler.setFormatter(logging.Formatter(layout))
        logger = logging.getLogger("clawd")
        logger.setLevel(self._settings.log.level.upper())
        logger.addHandler(handler)
        self._held.callback(handler.close)
        self._held.callback(logger.removeHandler, handler)

    def _on_end(self, child: Child, status: int) -> None:
        is_server = child.spec.name == SERVER
        if is_server:
            self._server_up = False
            if self.ready_at is None:
                self._give_up_if_hopeless(child, status)
        words = last_words(child.log.since_start())
        log.error("%s ended with %s and is started again\n%s", child.spec.name, describe_exit(status), words)
        self._write_record()

    def _give_up_if_hopeless(self, server: Child, status: int) -> None:
        words = last_words(server.log.since_start())
        if status in INCURABLE:
            raise INCURABLE[status](words or f"the server ended with {describe_exit(status)} and said nothing")
        if server.failures >= FIRST_START_ATTEMPTS:
            raise errors.ProcessFailed(
                f"The server ended {server.failures} times before it was ready, at last with {describe_exit(status)}. "
                f"Its log is {server.log.path}, and ends with:\n{words}"
            )

    def _look_for_readiness(self) -> None:
        if self._server_up or not any(child.pid for child in self.children if child.spec.name == SERVER):
            return
        self._server_up = self._answers("/readyz", READY_PROBE_S)
        if self._server_up and self.ready_at is None:
            self.ready_at = time.time()
            self._write_record()
            self._notifier.ready(f"serving on {self.url}")
            log.info("ready after %.1f s", self.ready_at - self._started_at)

    def _feed_watchdog(self, now: float) -> None:
        """Three times per period. A server that is starting again is in our hands: only one that hangs is not."""
        period_s = self._notifier.watchdog_s
        if period_s is None or self.ready_at is None or now < self._ping_due:
            return
        self._ping_due = now + period_s / 3
        if not self._server_up or self._answers("/healthz", HEALTH_PROBE_S):
            self._notifier.alive()
        else:
            log.warning("the server doesn't answer /healthz")

    def _wait_for_children(self, deadline: float) -> bool:
        """Until all have ended, the deadline has come or we are told to kill; whether all have ended."""
        while not self.should_kill:
            for child in self.children:
                child.log.show()
                child.reap(self._clock())
            if not any(child.pid for child in self.children):
                return True
            if self._clock() >= deadline:
                return False
            time.sleep(TICK_S / 4)
        return not any(child.pid for child in self.children)

    @property
    def _stop_within_s(self) -> float:
        return self._settings.daemon.grace_s + 2 * KILL_MARGIN_S

    def _write_record(self) -> None:
        pid = os.getpid()
        written = record.DaemonRecord(
            pid=pid,
            pid_started=record.process_started(pid) or 0,
            started_at=self._started_at,
            ready_at=self.ready_at,
            host=self._settings.server.host,
            port=self.port,
            url=self.url,
            version=__version__,
            stop_within_s=self._stop_within_s,
            processes=[child.record(self.should_exit) for child in self.children],
        )
        record.write(self._folder, written)
