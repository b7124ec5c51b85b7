"""The server process: store, engine and HTTP, in the order in which they start, and ended in the other."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import uvicorn

from clawd.config import Settings, take_over
from clawd.errors import ClawdError
from clawd.lifeline import die_with_parent
from clawd.model import names
from clawd.model.binding import probe
from clawd.model.embedded import embedded_model_path
from clawd.model.fingerprint import fingerprint
from clawd.model.prompt import PromptRenderer
from clawd.model.replies.families import ReplyFormat
from clawd.paths import DataFolder
from clawd.presence import Presence
from clawd.server.app import create_app
from clawd.server.engine.constraint import Compiler
from clawd.server.engine.engine import Engine
from clawd.server.engine.restoring import saved_states
from clawd.server.metrics import Metrics
from clawd.server.services import Services
from clawd.server.structure import Structure
from clawd.server.swapper import Swapper
from clawd.server.versions import Versions
from clawd.store import Store

log = logging.getLogger(__name__)


@contextmanager
def running_services(settings: Settings, folder: DataFolder) -> Iterator[Services]:
    """Everything that serves but HTTP.

    Raises:
        ModelError, BindingError, StoreError: it can't start, and starting again won't help.
    """
    model = settings.model.path or embedded_model_path()
    report = probe(model, folder.cache)
    if report.explanation:
        log.warning("%s", report.explanation)
    digest = fingerprint(model, folder.cache)
    with Store(folder.database) as store, ExitStack() as held:
        store.turns.discard_interrupted()
        saved = saved_states(folder.states, digest, settings)
        presence = held.enter_context(closing(Presence(folder.presence)))
        engine = Engine(model, settings, use_extra_bufts=report.use_extra_bufts, saved=saved, presence=presence)
        engine.start()
        try:
            replies = ReplyFormat.of(engine.vocabulary, settings.model.reply_format)
            structure = Structure(replies, Compiler(engine.vocabulary, replies.tags))
            versions = Versions(store, names.base_name(settings.model, model), digest)
            services = Services(
                settings=settings,
                folder=folder,
                store=store,
                engine=engine,
                vocabulary=engine.vocabulary,
                renderer=PromptRenderer.of(engine.vocabulary),
                replies=replies,
                structure=structure,
                versions=versions,
                metrics=Metrics(engine, store, structure),
                model_path=model,
                model_is_embedded=settings.model.path is None,
                owner_key=folder.owner_key(),
                binding_note=report.explanation,
            )
            swapper = Swapper(store, engine, versions, model, folder.server_bell)
            swapper.start()
            try:
                yield services
            finally:
                swapper.stop()
        finally:
            engine.stop(0.0)
            engine.close()


class QuietServer(uvicorn.Server):
    """uvicorn raises the signals that it caught once more when it is done, in the middle of our own ending."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """uvicorn on a socket that the daemon has bound: while this process restarts, callers wait in its backlog."""

    def __init__(self, services: Services, listener: socket.socket) -> None:
        self._services = services
        self._listener = listener
        config = uvicorn.Config(
            create_app(services),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=max(1, int(services.settings.daemon.grace_s)),
        )
        self._server = QuietServer(config)

    async def run(self) -> int:
        """Until `exit_soon`; requests that run then get the grace time, and every turn is stored.

        Returns the exit status: 0, or 1 if it ended because the engine died.
        """
        watch = asyncio.create_task(self._watch_engine())
        await self._server.serve(sockets=[self._listener])
        watch.cancel()
        engine_died = not self._services.engine.alive
        await asyncio.to_thread(self._services.engine.stop, 0.0)  # what still runs is cut, and told so
        await asyncio.sleep(0)  # lets the engine's last events arrive
        await self._services.settle()
        return 1 if engine_died else 0

    def exit_soon(self) -> None:
        """To be called on the event loop, or by a signal handler."""
        self._server.should_exit = True

    async def _watch_engine(self) -> None:
        """A dead engine can't be revived in this process: end it, so that the daemon starts another."""
        while self._services.engine.alive:
            await asyncio.sleep(0.5)
        log.error("the engine has died; this server ends")
        self._server.should_exit = True


async def serve_until_signal(services: Services, listener: socket.socket) -> int:
    server = HttpServer(services, listener)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.exit_soon)
    return await server.run()


def main(arguments: Sequence[str] | None = None) -> int:
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m clawd.server")
    parser.add_argument("--home", type=Path, required=True, help="the data folder")
    parser.add_argument("--fd", type=int, required=True, help="a listening socket, inherited")
    given = parser.parse_args(arguments)
    folder = DataFolder(given.home)
    settings = take_over(folder.settings_file)
    logging.basicConfig(
        level=settings.log.level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    # Before uvicorn takes the signals over, TERM must end a process that still loads its model.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with running_services(settings, folder) as services, socket.socket(fileno=given.fd) as listener:
            return asyncio.run(serve_until_signal(services, listener))
    except ClawdError as error:
        log.error("%s", error)
        return error.exit_status
