"""A real daemon, learner included, whose server answers some requests as a script says and the others with its model.

    python -m tests.node.scripted_daemon HOME      the daemon
    python -m tests.node.scripted_daemon --home HOME --fd N      its server

The script is `HOME/script.json`: a list of lines, each said once, in answer to the first request whose prompt holds all
of its `after`. What a small model answers by itself is nothing to rely on: least of all a tool call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from clawd.config import ServerSettings, Settings, take_over
from clawd.daemon.child import ChildSpec
from clawd.daemon.supervisor import LEARNER, SERVER, Daemon
from clawd.errors import ClawdError
from clawd.lifeline import die_with_parent
from clawd.paths import DataFolder
from clawd.server.engine.engine import Engine, Handle
from clawd.server.engine.types import GenerationRequest, Sink
from clawd.server.process import running_services, serve_until_signal
from tests.server.scripted import ScriptedEngine

MODULE = "tests.node.scripted_daemon"
ANSWER_TOKENS = 400  # the longest answer: long enough to go away from, short enough to wait for


@dataclass(frozen=True)
class Line:
    after: tuple[str, ...]
    say: str


class FollowsScript(ScriptedEngine):
    def __init__(self, engine: Engine, lines: Sequence[Line]) -> None:
        super().__init__(engine)
        self._lines = list(lines)

    def submit(self, request: GenerationRequest, sink: Sink) -> Handle:
        prompt = b"".join(self.vocabulary.token_bytes(token, special=True) for token in request.prompt_ids).decode()
        line = next((line for line in self._lines if all(words in prompt for words in line.after)), None)
        if line is not None:
            self._lines.remove(line)
            self.say(line.say)
        return super().submit(request, sink)


def write_script(home: Path, lines: Sequence[Line]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "script.json").write_text(json.dumps([asdict(line) for line in lines]))


def read_script(home: Path) -> list[Line]:
    return [Line(tuple(line["after"]), line["say"]) for line in json.loads((home / "script.json").read_text())]


def processes(folder: DataFolder, descriptor: int) -> list[ChildSpec]:
    home = ("--home", str(folder.root))
    server = (sys.executable, "-m", MODULE, *home, "--fd", str(descriptor))
    return [
        ChildSpec(SERVER, server, descriptors=(descriptor,)),
        ChildSpec(LEARNER, (sys.executable, "-m", "clawd.learner", *home), after_ready=True),
    ]


def serve(home: Path, descriptor: int) -> int:
    die_with_parent()
    folder = DataFolder(home)
    settings = take_over(folder.settings_file)
    logging.basicConfig(level=settings.log.level.upper(), stream=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with running_services(settings, folder) as services, socket.socket(fileno=descriptor) as listener:
        services.engine = FollowsScript(services.engine, read_script(home))  # type: ignore[assignment]
        return asyncio.run(serve_until_signal(services, listener))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("daemon", nargs="?", type=Path)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--fd", type=int)
    given = parser.parse_args()
    if given.daemon is None:
        return serve(given.home, given.fd)
    settings = Settings(server=ServerSettings(port=0, default_max_tokens=ANSWER_TOKENS))
    try:
        return Daemon(DataFolder(given.daemon), settings, processes, terminal=sys.stderr).run()
    except ClawdError as error:
        print(error, file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
