"""A real OpenClaw in a home of its own, talking to a real clawd. Every process that it starts ends with it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from clawd.cli import status_view
from clawd.daemon import control, record
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import Turn
from tests.cli.command import clawd
from tests.node.installed import ROOT, Installed
from tests.node.scripted_daemon import MODULE, Line, write_script
from tests.tiny_daemon import wait_for

PLUGIN = ROOT / "integrations" / "openclaw"
NO_REACHING_OUT = {
    # OpenClaw's own switches; the model catalogue's is in the config.
    "OPENCLAW_NO_AUTO_UPDATE": "1",
    "OPENCLAW_DISABLE_BONJOUR": "1",
    "OPENCLAW_SKIP_CHANNELS": "1",
    "OPENCLAW_NO_RESPAWN": "1",
    "DO_NOT_TRACK": "1",
}
START_S = 90.0
TURN_S = 150


class OpenClaw:
    """`home/.openclaw` and what it holds; `clawd_home` is clawd's data folder."""

    def __init__(self, installed: Installed, home: Path, clawd_home: Path) -> None:
        self._installed = installed
        self.home = home
        self.clawd_home = clawd_home
        self.workspace = home / "workspace"
        self.config = home / ".openclaw" / "openclaw.json"
        self.refused = home / "refused.txt"
        self.gateway_log = home / "gateway.log"
        self._gateway: subprocess.Popen[bytes] | None = None
        self._port = free_port()

    def set_up(self) -> None:
        """As a person has it before clawd comes: a workspace, a gateway, comments in the config."""
        self.workspace.mkdir(parents=True)
        self.config.parent.mkdir()
        settings = {
            "gateway": {
                "mode": "local",
                "port": self._port,
                "bind": "loopback",
                "auth": {"mode": "token", "token": "a-token-of-the-test"},
            },
            "update": {"checkOnStart": False},
            "models": {"catalogRefresh": {"enabled": False}},
            "logging": {"file": str(self.home / "openclaw.log")},
            "agents": {"defaults": {"workspace": str(self.workspace), "sandbox": {"mode": "off"}}},
        }
        self.config.write_text(f"// mine\n{json.dumps(settings, indent=2)}\n")

    def connect(self, *flags: str) -> str:
        """`clawd connect openclaw`, as a person runs it; what it printed."""
        done = clawd(self.clawd_home, "connect", "openclaw", "--config", str(self.config), *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def settings(self) -> dict:
        return json.loads(self.config.read_text())

    def run(self, *arguments: str, status: int = 0) -> str:
        """One `openclaw` command to its end; its stdout."""
        process = self.begin(*arguments)
        try:
            out, said = process.communicate(timeout=TURN_S)
        finally:
            end_group(process)
        assert process.returncode == status, f"openclaw {' '.join(arguments)}\n{out}\n{said}\n{self._log()[-3000:]}"
        return out

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """The same, and it goes on: the caller ends it."""
        return subprocess.Popen(
            self._command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment(),
            cwd=self.home,
            start_new_session=True,
        )

    def say(self, text: str, *, fails: bool = False) -> str:
        """One turn through the gateway; the answer, or the trouble, that a person is shown."""
        out = self.run("agent", "--agent", "main", "--message", text, "--json", status=int(fails))
        done = json.loads(out)
        assert done["status"] == ("error" if fails else "ok"), done
        return "\n".join(payload["text"] or "" for payload in done["result"]["payloads"])

    def start_gateway(self) -> None:
        with self.gateway_log.open("ab") as log:
            self._gateway = subprocess.Popen(
                self._command("gateway", "run"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd=self.home,
                start_new_session=True,
            )
        wait_for(self._is_ready, "OpenClaw's gateway is ready", timeout_s=START_S)

    def stop_gateway(self) -> None:
        """With all that it started, some of it in sessions of its own."""
        if self._gateway is None:
            return
        family = with_children(self._gateway.pid)
        self._gateway.terminate()
        try:
            self._gateway.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._gateway.kill()
            self._gateway.wait()
        self._gateway = None
        for process in psutil.wait_procs(family, timeout=5)[1]:
            process.kill()

    def install_plugin(self) -> None:
        """As `integrations/openclaw/README.md` says, while the gateway runs."""
        self.run("plugins", "install", "--link", str(PLUGIN), "--force", "--accept-capabilities")
        self.run("config", "set", "plugins.entries.clawd.hooks.allowConversationAccess", "true", "--strict-json")
        self.wait_for_reload("plugins.entries.clawd.hooks")

    def wait_for_reload(self, setting: str) -> None:
        """The gateway looks after its config itself, and says what it has taken over."""
        applied = re.compile(rf"config hot reload applied \([^)]*{re.escape(setting)}")
        wait_for(lambda: applied.search(self._log()) is not None, f"{setting} is taken over", timeout_s=60)

    def reached_for(self) -> set[str]:
        """Hosts beyond this machine that OpenClaw tried, in vain, to reach."""
        lines = self.refused.read_text().splitlines() if self.refused.exists() else []
        return {line.split(" ", 2)[1] for line in lines}

    def _log(self) -> str:
        return self.gateway_log.read_text() if self.gateway_log.exists() else ""

    def _is_ready(self) -> bool:
        assert self._gateway is not None
        assert self._gateway.poll() is None, self._log()
        try:
            return httpx.get(f"http://127.0.0.1:{self._port}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def _command(self, *arguments: str) -> list[str]:
        return [str(self._installed.node), str(self._installed.openclaw), *arguments]

    def _environment(self) -> dict[str, str]:
        return self._installed.environment(
            self.home, self.refused, OPENCLAW_CONFIG_PATH=str(self.config), **NO_REACHING_OUT
        )


class Clawd:
    """The daemon with a script, and what it has stored."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def engine(self) -> dict:
        server = status_view.look(DataFolder(self.home)).server
        assert server is not None
        return server["engine"]

    def sessions_by_evidence(self) -> dict[str, int]:
        server = status_view.look(DataFolder(self.home)).server
        assert server is not None
        return server["sessions"]["by_evidence"]

    def turns(self) -> list[Turn]:
        """All turns, in the order of their requests."""
        with Store(DataFolder(self.home).database) as store:
            ids = [turn for session in store.sessions.all() for turn in store.turns.ids_of_session(session.id)]
            return [store.turns.get(turn) for turn in sorted(ids)]

    def scores(self, turn_id: str) -> list[int | None]:
        with Store(DataFolder(self.home).database) as store:
            return [vote.score for vote in store.signals.votes(turn_id)]

    def kind_evidence(self, turn_id: str) -> str:
        with sqlite3.connect(DataFolder(self.home).database) as database:
            found = database.execute("SELECT kind_evidence FROM turns WHERE id = ?", (turn_id,)).fetchone()
        return str(found[0])

    def errors(self) -> list[str]:
        log = (DataFolder(self.home).logs / "server.log").read_text().splitlines()
        return [line for line in log if "ERROR" in line or "Traceback" in line]


@contextmanager
def scripted_clawd(home: Path, script: Sequence[Line]) -> Iterator[Clawd]:
    write_script(home, script)
    folder = DataFolder(home)
    output = (home / "daemon.txt").open("wb")
    process = subprocess.Popen([sys.executable, "-m", MODULE, str(home)], stdout=output, stderr=output, cwd=ROOT)

    def is_ready() -> bool:
        assert process.poll() is None, (home / "daemon.txt").read_text()
        found = record.running(folder)
        return found is not None and found.ready_at is not None

    try:
        wait_for(is_ready, "clawd is ready", timeout_s=60)
        yield Clawd(home)
    finally:
        if record.running(folder) is not None:
            control.stop(folder)
        process.kill()
        process.wait()
        output.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def with_children(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end_group(process: subprocess.Popen[str]) -> None:
    """What a command has left of itself, if anything."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + 5
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
