"""The demo from beginning to end: daemon up, idle figures, conversations, the update, what came of it, daemon down.

Everything is done over HTTP as any client would; the store and the log of the throw-away daemon are only read, at the
end, for what was learnt from which turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from clawd.bench.daemon import throw_away_daemon
from clawd.bench.demo.clients import Api, Call, ChattingUser, Exchange, Streamer
from clawd.bench.demo.gain import Gain, measure
from clawd.bench.demo.persona import HELD_OUT, Persona
from clawd.bench.report import Goal, Report
from clawd.errors import ClawdError
from clawd.learner.job import ADAPTER_GGUF, MANIFEST_FILE, Manifest
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import Update, Version

IDLE_STREAMS = 12
LONGEST_UPDATE_S = 300.0
MOST_SESSIONS = 40
POLL_S = 0.1

Say = Callable[[str], None]


class DemoFailed(ClawdError):
    """The demo came to no update; the text says how far it got, and where the daemon's logs are."""


@dataclass(frozen=True)
class Lesson:
    """One turn that the update learnt from."""

    said: str
    answer: str
    reward: int | None
    hints: list[str]
    because: str


@dataclass(frozen=True)
class Outcome:
    exchanges: list[Exchange]
    lessons: list[Lesson]
    update: Update
    version: Version
    metrics: Mapping[str, float]
    phases_s: Mapping[str, float]  # of the update
    question: str
    before: str
    after: str
    gain: Gain
    calls: list[Call]
    idle_first_tokens: list[float]
    update_first_tokens: list[float]
    published_to_served_s: float
    update_s: float

    @property
    def failures(self) -> list[Call]:
        return [call for call in self.calls if call.error is not None]

    @property
    def first_token_ratio(self) -> float | None:
        """Worst time to first token while the update ran, against the worst while nothing else went on."""
        if not self.idle_first_tokens or not self.update_first_tokens:
            return None
        return max(self.update_first_tokens) / max(self.idle_first_tokens)

    def goals(self) -> list[Goal]:
        return [
            Goal("failed_requests", len(self.failures), 0, "lower"),
            Goal("active_version", self.version.number, 1, "higher"),
            Goal("preference_gain_nats", round(self.gain.nats, 4), 0.02, "higher"),
            Goal("publish_to_served_s", round(self.published_to_served_s, 3), 0.5, "lower"),
            Goal("update_s", round(self.update_s, 1), 120, "lower"),
            Goal("ttft_during_update_ratio", _rounded(self.first_token_ratio), 3, "lower"),
        ]

    def report(self, command: str) -> Report:
        row = {
            "sessions": len({exchange.said for exchange in self.exchanges}),
            "answers": len(self.exchanges),
            "samples": len(self.lessons),
            "requests": len(self.calls),
            "base_margin_nats": round(self.gain.base.margin, 4),
            "version_margin_nats": round(self.gain.version.margin, 4),
            "idle_ttft_s": _spread(self.idle_first_tokens),
            "update_ttft_s": _spread(self.update_first_tokens),
            "question": self.question,
            "answer_before": self.before,
            "answer_after": self.after,
            "update": dict(self.metrics),
            "update_phases_s": dict(self.phases_s),
        }
        return Report("demo", command, [row], self.goals())


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "count": len(values),
        "median": round(statistics.median(values), 4),
        "worst": round(max(values), 4),
    }


def run(seed: int, say: Say) -> Outcome:
    """Play the demo. `say` gets one sentence per step, for a person.

    Raises:
        DemoFailed: no version came to be served; the data folder is left for a look.
    """
    with throw_away_daemon() as daemon:
        say(f"A daemon with its own folder answers at {daemon.url}/v1")
        with Api(daemon.url) as api:
            return _Play(daemon.folder, api, Persona(seed), say).run()


class _Play:
    def __init__(self, folder: DataFolder, api: Api, persona: Persona, say: Say) -> None:
        self._folder = folder
        self._api = api
        self._persona = persona
        self._say = say
        self._question = HELD_OUT[0][0]

    def run(self) -> Outcome:
        before = self._answer()
        streamer = Streamer(self._api)
        streamer.start()
        try:
            idle = self._idle(streamer)
            exchanges = self._converse()
            status = self._wait_for_version()
        finally:
            streamer.stop()
        self._say(f"Version {status['active_version']} answers")
        return self._collect(status, before, exchanges, streamer, idle)

    def _answer(self) -> str:
        completion = self._api.chat(
            [{"role": "user", "content": self._question}],
            temperature=0,
            max_tokens=80,
            headers={"X-Turn-Type": "side"},
        )
        return str(completion["choices"][0]["message"]["content"]) if completion else ""

    def _idle(self, streamer: Streamer) -> list[float]:
        self._say("A second client streams from now on; first alone, for the idle figures")
        while len(streamer.calls) < IDLE_STREAMS and not streamer.failed:
            time.sleep(POLL_S)
        return streamer.first_tokens(lambda _: True)

    def _adapter(self) -> dict[str, Any]:
        adapters: list[dict[str, Any]] = self._api.get("/clawd/v1/status")["adapters"]
        return adapters[0]

    def _converse(self) -> list[Exchange]:
        """Sessions until an update has begun."""
        user = ChattingUser(self._api, self._persona)
        exchanges: list[Exchange] = []
        for number in range(MOST_SESSIONS):
            question = self._persona.questions[number % len(self._persona.questions)]
            session = user.session(question, seed=1000 * number)
            exchanges += session
            adapter = self._adapter()
            moods = ", ".join(exchange.mood for exchange in session) or "failed"
            judged = sum(adapter["samples"].values())
            self._say(f"Session {number + 1}: {moods}; {judged}/{adapter['samples_needed']} samples")
            if adapter["last_update"] is not None:
                return exchanges
        raise DemoFailed(f"{MOST_SESSIONS} sessions brought no update. The daemon's folder is {self._folder.root}.")

    def _wait_for_version(self) -> dict[str, Any]:
        self._say("An update runs in the background; the second client streams on")
        deadline = time.monotonic() + LONGEST_UPDATE_S
        while time.monotonic() < deadline:
            adapter = self._adapter()
            if adapter["active_version"]:
                return adapter
            if adapter["last_update"]["state"] in ("refused", "failed"):
                raise DemoFailed(
                    f"The update {adapter['last_update']['state']}: {adapter['last_update']['reason']}. "
                    f"The daemon's folder is {self._folder.root}."
                )
            time.sleep(POLL_S)
        raise DemoFailed(f"No version within {LONGEST_UPDATE_S:.0f} s. The daemon's folder is {self._folder.root}.")

    def _collect(
        self, status: dict[str, Any], before: str, exchanges: list[Exchange], streamer: Streamer, idle: list[float]
    ) -> Outcome:
        after = self._answer()
        model = Path(self._api.get("/clawd/v1/status")["model"]["path"])
        with Store(self._folder.database) as store:
            adapter = store.people.named("default").adapter
            version = store.updates.version_number(adapter.id, status["active_version"])
            assert version is not None
            update = store.updates.get(version.update_id)
            lessons = [_lesson(store, sample.turn_id) for sample in store.signals.of_update(update.id)]
            metrics = store.updates.metrics(update.id)
        manifest = Manifest.model_validate_json((version.folder / MANIFEST_FILE).read_text())
        self._say("Scoring held-out replies under the base and the new version")
        ended = version.staged_at
        return Outcome(
            exchanges=exchanges,
            lessons=lessons,
            update=update,
            version=version,
            metrics=metrics,
            phases_s=manifest.seconds,
            question=self._question,
            before=before,
            after=after,
            gain=measure(model, version.folder / ADAPTER_GGUF, psutil.cpu_count(logical=False) or 1),
            calls=self._api.calls,
            idle_first_tokens=idle,
            update_first_tokens=streamer.first_tokens(lambda call: update.started_at <= call.began_at <= ended),
            published_to_served_s=(version.activated_at or time.time()) - version.staged_at,
            update_s=ended - update.started_at,
        )


def _lesson(store: Store, turn_id: str) -> Lesson:
    turn = store.turns.get(turn_id)
    sample = store.signals.sample_of(turn_id)
    votes = store.signals.votes(turn_id)
    return Lesson(
        said=str(turn.messages[-1]["content"]),
        answer=turn.response_text,
        reward=sample.reward if sample else None,
        hints=[hint.text for hint in store.signals.hints(turn_id)],
        because=", ".join(vote.reason for vote in votes),
    )
