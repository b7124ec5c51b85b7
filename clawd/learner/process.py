"""The learner process: judges turns, updates adapters, keeps house. Start up, wait, shut down.

Each of its loops is an object with a `tick` that does what is due and returns. APScheduler calls them, each in a thread
of its own, every second or minute; the doorbell has all but housekeeping called at once. A tick that still runs when
the next is due goes on: whatever it missed is in the store. On TERM the process ends at once: the update's child is
ended and its samples wait again, judge calls are abandoned and their turns wait. Never imports torch.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler

from clawd.config import Settings, take_over
from clawd.doorbell import Doorbell, ring
from clawd.errors import ClawdError, NotRunning
from clawd.learner.backends.local import LocalBackend
from clawd.learner.hints import Render
from clawd.learner.housekeeping import Housekeeping
from clawd.learner.jobs import ServedModel
from clawd.learner.judge.judging import Judging, ModelJudging
from clawd.learner.judge.llm import LlmJudge
from clawd.learner.publish import Publisher
from clawd.learner.schedule import Deps, Updates
from clawd.lifeline import die_with_parent
from clawd.model.embedded import embedded_model_path
from clawd.model.fingerprint import fingerprint
from clawd.model.names import base_name
from clawd.model.prompt import PromptRenderer
from clawd.model.vocab import Vocabulary
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import Message

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
KEEP_HOUSE_EVERY_S = 60.0


class SetBackWatch:
    """Tells when the clock was set back: APScheduler would wait until it shows again what it showed before."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._last = wall()

    def was_set_back(self) -> bool:
        """Since the last call, by more than a moment."""
        before, self._last = self._last, self._wall()
        return self._last < before - LOOK_EVERY_S


class Learner:
    """The loops over one store. `tick`s can be called one by one; `run` has the scheduler call them."""

    def __init__(
        self, store: Store, judging: Judging, asking: ModelJudging | None, updates: Updates, housekeeping: Housekeeping
    ) -> None:
        self._store = store
        self.judging = judging
        self.asking = asking
        self.updates = updates
        self.housekeeping = housekeeping
        self.should_exit = False

    def run(self, bell: Doorbell) -> None:
        """Until `should_exit`, then end what runs."""
        self.updates.recover()
        loops = self._loops()
        # A thread per loop, and each stays: an update's child is killed when the thread that started it ends.
        scheduler = BackgroundScheduler(
            executors={name: ThreadPoolExecutor(1) for name in loops},
            job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": None},
            timezone=UTC,
        )
        for name, (tick, every_s) in loops.items():
            scheduler.add_job(
                tick, "interval", seconds=every_s, id=name, executor=name, next_run_time=datetime.now(UTC)
            )
        scheduler.start()
        clock = SetBackWatch(time.time)
        try:
            while not self.should_exit:
                rung = bell.wait(LOOK_EVERY_S)
                if clock.was_set_back():
                    self._hurry(scheduler, list(loops))
                elif rung:
                    self._hurry(scheduler, [name for name in loops if name != "housekeeping"])
        finally:
            self._shut_down(scheduler)

    def _loops(self) -> dict[str, tuple[Callable[[], None], float]]:
        loops = {
            "judging": (self.judging.tick, LOOK_EVERY_S),
            "updates": (self.updates.tick, LOOK_EVERY_S),
            "housekeeping": (self.housekeeping.tick, KEEP_HOUSE_EVERY_S),
        }
        if self.asking is not None:
            loops["model judging"] = (self.asking.tick, LOOK_EVERY_S)
        return loops

    @staticmethod
    def _hurry(scheduler: BackgroundScheduler, loops: Sequence[str]) -> None:
        for name in loops:
            try:
                scheduler.modify_job(name, next_run_time=datetime.now(UTC))
            except JobLookupError:
                log.debug("%s is gone: the learner ends", name)

    def _shut_down(self, scheduler: BackgroundScheduler) -> None:
        if self.asking is not None:
            self.asking.stop()
        scheduler.shutdown(wait=True)  # ticks are short, and the one that isn't has just been stopped
        self.updates.stop()
        log.info("ended")


def build(settings: Settings, folder: DataFolder, store: Store, served: ServedModel, render: Render) -> Learner:
    """Wire the loops as the settings say.

    Raises:
        NotRunning: the judge is this very server, and no daemon has said where that is.
    """
    publisher = Publisher(folder, store, lambda: ring(folder.server_bell))
    backend = LocalBackend(folder.logs / "update.log", settings.learn, presence=folder.presence)
    deps = Deps(folder, store, settings.learn, served, render, backend, publisher)
    asking = None
    if settings.judge.kind == "llm":
        asking = ModelJudging(store, llm_judge(settings, folder, served), card=settings.learn.card)
    judging = Judging(store, model_judges=asking is not None, card=settings.learn.card)
    housekeeping = Housekeeping(folder, store, publisher, settings.sessions, settings.learn.keep)
    return Learner(store, judging, asking, Updates(deps), housekeeping)


def llm_judge(settings: Settings, folder: DataFolder, served: ServedModel) -> LlmJudge:
    """The judge that the settings name; by default the bare base model of this very server."""
    judge = settings.judge
    return LlmJudge(
        judge,
        judge.base_url or own_url(folder),
        judge.model or served.name,
        is_own_server=judge.base_url is None,
        owner_key=folder.owner_key(),
    )


def own_url(folder: DataFolder) -> str:
    """Base URL of this daemon's own endpoint. Raises NotRunning."""
    try:
        return str(json.loads(folder.daemon_file.read_text())["url"]) + "/v1"
    except (OSError, ValueError, LookupError):
        raise NotRunning(
            f"{folder.daemon_file} doesn't say where the server is: start the daemon, or set judge.base_url."
        ) from None


def renderer(vocabulary: Vocabulary) -> Render:
    """Prompts as the server renders them."""
    prompts = PromptRenderer.of(vocabulary)

    def render(messages: list[Message], tools: list[Any] | None, parameters: dict[str, Any]) -> list[int]:
        return prompts.prompt_ids(messages, tools=tools, **parameters.get("template_arguments", {}))

    return render


def main(arguments: Sequence[str] | None = None) -> int:
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m clawd.learner")
    parser.add_argument("--home", type=Path, required=True, help="the data folder")
    folder = DataFolder(parser.parse_args(arguments).home)
    settings = take_over(folder.settings_file)
    set_up_logging(settings)
    try:
        return run(settings, folder)
    except ClawdError as error:
        log.error("%s", error)
        return error.exit_status


def run(settings: Settings, folder: DataFolder) -> int:
    """From start up to shut down; the exit status."""
    stopping = False
    learner: Learner | None = None

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        if learner is not None:
            learner.should_exit = True
        ring(folder.learner_bell)

    with ExitStack() as held:
        bell = Doorbell(folder.learner_bell)
        held.callback(bell.close)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, on_signal)
        model = settings.model.path or embedded_model_path()
        store = held.enter_context(Store(folder.database))
        vocabulary = held.enter_context(Vocabulary.open(model))
        served = ServedModel(model, fingerprint(model, folder.cache), base_name(settings.model, model))
        learner = build(settings, folder, store, served, renderer(vocabulary))
        learner.should_exit = stopping
        learner.run(bell)
    return 0


def set_up_logging(settings: Settings) -> None:
    logging.basicConfig(
        level=settings.log.level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    # It would tell every second that a loop runs, or still runs; an exception in one is an error and is told.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    logging.getLogger("httpx").setLevel(logging.WARNING)
