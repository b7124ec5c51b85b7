"""A real daemon whose children are tiny true programs, so that its life can be tested without a model.

`python -m tests.tiny_daemon HOME [SERVER [LEARNER [PORT]]]` runs one; SERVER and LEARNER name programs of `PROGRAMS`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clawd.config import DaemonSettings, ServerSettings, Settings
from clawd.daemon import record
from clawd.daemon.child import ChildSpec
from clawd.daemon.record import DaemonRecord
from clawd.daemon.supervisor import LEARNER, SERVER, Daemon, Processes
from clawd.errors import ClawdError
from clawd.paths import DataFolder

ANSWERS = """
import http.server, socket, sys
from clawd.lifeline import die_with_parent
die_with_parent()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"served": "nothing"}')
server = http.server.ThreadingHTTPServer(("", 0), Handler, bind_and_activate=False)
server.socket.close()
server.socket = socket.socket(fileno=int(sys.argv[1]))
print("tiny server is up", flush=True)
server.serve_forever()
"""
TELLS_MODEL = ANSWERS.replace('{"served": "nothing"}', '{"model": {"context_tokens": 8192, "answer_tokens": 8192}}')
WAITS = """
import time
from clawd.lifeline import die_with_parent
die_with_parent()
print("waiting", flush=True)
time.sleep(600)
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + WAITS
CRASHES = "import sys; print('about to crash', flush=True); sys.exit(3)"
NO_MODEL = "import sys; print('noise\\nclawd: no such model: x.gguf', file=sys.stderr); sys.exit(66)"
PARENT = """
import subprocess, sys
from clawd import lifeline
lifeline.die_with_parent()
program = "from clawd.lifeline import die_with_parent; die_with_parent(); print('up', flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", program], env=lifeline.environment(), stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
child.stdout.readline()
print("grandchild", child.pid, flush=True)
child.wait()
"""
PROGRAMS = {
    "answers": ANSWERS,
    "tells_model": TELLS_MODEL,
    "waits": WAITS,
    "stubborn": STUBBORN,
    "crashes": CRASHES,
    "no_model": NO_MODEL,
    "parent": PARENT,
}

GRACE_S = 0.3


def settings_for(port: int = 0) -> Settings:
    return Settings(server=ServerSettings(port=port), daemon=DaemonSettings(grace_s=GRACE_S))


def processes(server: str = "answers", learner: str = "waits") -> Processes:
    def specs(_folder: DataFolder, descriptor: int) -> list[ChildSpec]:
        command = (sys.executable, "-c", PROGRAMS[server], str(descriptor))
        return [
            ChildSpec(SERVER, command, descriptors=(descriptor,)),
            ChildSpec(LEARNER, (sys.executable, "-c", PROGRAMS[learner]), after_ready=True),
        ]

    return specs


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    return record.process_started(pid) is None


class TinyDaemon:
    """One in a process of its own."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.folder = DataFolder(home)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.tiny_daemon", str(home), *arguments],
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )

    def wait_until_ready(self) -> DaemonRecord:
        """Ready, and the learner started."""

        def is_up() -> bool:
            assert self.process.poll() is None, self.end_and_read()
            found = record.running(self.folder)
            return found is not None and found.ready_at is not None and all(child.pid for child in found.processes)

        wait_for(is_up, "daemon ready")
        found = record.running(self.folder)
        assert found is not None
        return found

    def end_and_read(self, timeout_s: float = 15.0) -> str:
        """Wait for its end; what it wrote to stderr."""
        return self.process.communicate(timeout=timeout_s)[1]


@contextmanager
def tiny_daemon(home: Path, *arguments: str) -> Iterator[TinyDaemon]:
    daemon = TinyDaemon(home, *arguments)
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            os.kill(daemon.process.pid, signal.SIGCONT)
            daemon.process.kill()
        daemon.process.communicate()


def main(home: str, server: str = "answers", learner: str = "waits", port: str = "0") -> int:
    daemon = Daemon(DataFolder(Path(home)), settings_for(int(port)), processes(server, learner), terminal=sys.stderr)
    try:
        return daemon.run()
    except ClawdError as error:
        print(error, file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
