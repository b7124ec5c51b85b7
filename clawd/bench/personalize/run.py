"""`clawd bench personalize` from beginning to end: the base first, then each arm, user and seed on a daemon of its own.

What is finished lies in the --out folder and isn't run again; a stop costs the run that it interrupts.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from clawd.bench.daemon import throw_away_daemon
from clawd.bench.personalize import baseline
from clawd.bench.personalize.arms import ARMS, NO_LEARNING, Arm
from clawd.bench.personalize.baseline import Base
from clawd.bench.personalize.dense_bases import handed_on
from clawd.bench.personalize.driver import Chat, Driver, Session
from clawd.bench.personalize.memories import memories, require_memory
from clawd.bench.personalize.memory import Memory
from clawd.bench.personalize.record import Conditions, JudgeReading, Records, RunRecord, require_same
from clawd.bench.personalize.scoring import Answers, Reply, Scorer
from clawd.bench.personalize.tasks import Task, generate, read_tasks
from clawd.bench.personalize.users import PERSONAS
from clawd.bench.personalize.users.persona import Persona, Voice
from clawd.config import ModelSettings
from clawd.learner.job import ADAPTER_GGUF
from clawd.model.names import base_name
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import DEFAULT_USER

Say = Callable[[str], None]

BASE_SEED = -1  # of the tasks that the base is measured on: no run has them

GO_ON = ("--learn.halt_after", "None")
"""Refused updates in a row halt an adapter until a person has looked; an experiment has nobody who would."""


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    model: Path
    out: Path
    arms: Sequence[str]
    users: Sequence[str]
    seeds: Sequence[int]
    sessions: int  # per user
    voice: Voice
    voice_name: str = "scripted"
    tasks: Path | None = None  # none: generated
    settings: Sequence[str] = ()  # flags of all daemons
    base_replies: int = 16  # per user, plain and with the wish each
    neutral_prompts: int = 40


@dataclass(frozen=True)
class Experiment:
    plan: Plan
    say: Say

    @property
    def records(self) -> Records:
        return Records(self.plan.out)

    def conditions(self) -> Conditions:
        plan = self.plan
        with plan.model.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Conditions(
            model=plan.model.name,
            model_sha256=digest,
            tasks=plan.tasks.name if plan.tasks else "generated",
            user_voice=plan.voice_name,
            base_replies=plan.base_replies,
            neutral_prompts=plan.neutral_prompts,
            settings=list(plan.settings),
        )

    def run(self) -> tuple[Base, list[RunRecord]]:
        """Measure what isn't there yet.

        Raises:
            BenchFailed: something couldn't be measured, or what is there was made under other conditions.
            MissingExtra: an arm needs one.
        """
        for name in self.plan.arms:
            require_memory(ARMS[name].memory, self.plan.model)
        conditions = self.conditions()
        base = self._base(conditions)
        runs = list(self._runs())
        records = []
        for number, (arm, users, seed) in enumerate(runs, start=1):
            told = f"[{number}/{len(runs)}] {arm.name}, {' and '.join(users)}, seed {seed}"
            records.append(self._record(conditions, base, arm, users, seed, told))
        return base, records

    def _runs(self) -> Iterator[tuple[Arm, tuple[str, ...], int]]:
        """Seed by seed, so that a stopped experiment has all arms."""
        for seed in self.plan.seeds:
            for arm in (ARMS[name] for name in self.plan.arms):
                for users in [tuple(self.plan.users)] if arm.joint else [(user,) for user in self.plan.users]:
                    yield arm, users, seed

    def _tasks(self, seed: int, count: int) -> list[Task]:
        return read_tasks(self.plan.tasks, seed, count) if self.plan.tasks else generate(seed, count)

    def _flags(self, *more: str) -> list[str]:
        return ["--model.path", str(self.plan.model), *GO_ON, *self.plan.settings, *more]

    # -- the base

    def _base(self, conditions: Conditions) -> Base:
        path = self.records.base_path
        conditions = conditions.model_copy(update={"settings": []})  # it doesn't learn: one base serves many settings
        kept = self.records.read(path, Base)
        if kept is not None:
            require_same(path, kept.conditions, conditions)
        for user in self.plan.users:
            if kept is None or user not in kept.users:
                self.say(f"The base, asked {self.plan.base_replies} times by the {user}; as often with the wish told")
                kept = self._measure_base(conditions, PERSONAS[user], kept)
                self.records.keep(path, kept)
        assert kept is not None  # a plan has users
        return kept

    def _measure_base(self, conditions: Conditions, persona: Persona, kept: Base | None) -> Base:
        """`kept` with one user more."""
        plan = self.plan
        tasks = self._tasks(BASE_SEED, plan.base_replies)
        name = base_name(ModelSettings(), plan.model)
        flags = ["--model.path", str(plan.model), *NO_LEARNING]
        with throw_away_daemon(flags) as daemon, closing(Chat(daemon.url)) as chat:
            before = kept or baseline.neutral(chat, name, conditions)
            found = baseline.of_user(chat, name, plan.model, persona, tasks)
        return before.model_copy(update={"users": {**before.users, persona.name: found}})

    # -- one run

    def _record(
        self, conditions: Conditions, base: Base, arm: Arm, users: tuple[str, ...], seed: int, told: str
    ) -> RunRecord:
        path = self.records.path(arm.name, users, seed)
        kept = self.records.read(path, RunRecord)
        if kept is None:
            self.say(told)
            kept = self._play(conditions, base, arm, users, seed)
            self.records.keep(path, kept)
        made = (kept.conditions, tuple(kept.flags), kept.sessions_per_user)
        require_same(path, made, (conditions, arm.flags, self.plan.sessions))
        return kept

    def _play(self, conditions: Conditions, base: Base, arm: Arm, users: tuple[str, ...], seed: int) -> RunRecord:
        began = time.monotonic()
        flags = self._flags(*arm.flags, "--learn.seed", str(seed))
        with throw_away_daemon(flags) as daemon, closing(Chat(daemon.url)) as chat:
            driver = Driver(chat, self.plan.voice, seed, learns=arm.flags != NO_LEARNING)
            remembering = memories(arm.memory, users, daemon, base_name(ModelSettings(), self.plan.model))
            with remembering as remembered, handed_on(self.plan.out / "cache", daemon.folder.cache):
                sessions = self._sessions(driver, [PERSONAS[user] for user in users], remembered, seed)
            scored = _score(daemon.folder, self.plan.model, base, sessions)
            with Store(daemon.folder.database) as store:
                updates, judge = _updates(store), _judge(store, sessions)
        return RunRecord(
            conditions=conditions,
            arm=arm.name,
            flags=list(arm.flags),
            seed=seed,
            sessions_per_user=self.plan.sessions,
            sessions=sessions,
            reply_logprobs=scored.reply_logprobs,
            drift=scored.drift,
            updates=updates,
            judge=judge,
            seconds=round(time.monotonic() - began, 1),
        )

    def _sessions(
        self, driver: Driver, personas: Sequence[Persona], remembered: Mapping[str, Memory], seed: int
    ) -> list[Session]:
        tasks = self._tasks(seed, self.plan.sessions * len(personas))
        sessions = []
        for number in range(self.plan.sessions):
            for place, persona in enumerate(personas):
                task = tasks[number * len(personas) + place]
                session = driver.session(persona, task, number, remembered.get(persona.name))
                self.say(_told(session))
                sessions.append(session)
        return sessions


def _told(session: Session) -> str:
    moods = ", ".join(exchange.mood for exchange in session.exchanges)
    return f"    {session.user} {session.number + 1}, {session.answered_by}: {moods}"


def _score(folder: DataFolder, model: Path, base: Base, sessions: Sequence[Session]) -> Answers:
    """While the daemon lives: its folder holds the versions."""
    replies = [Reply(asked=session.asked, text=session.exchanges[0].reply) for session in sessions]
    with Store(folder.database) as store:
        versions = store.updates.versions(store.people.named(DEFAULT_USER).adapter.id)
    answered = {session.answered_by for session in sessions}
    adapters = {
        f"v{version.number}": version.folder / ADAPTER_GGUF for version in versions if f"v{version.number}" in answered
    }
    return Scorer(model, base.neutral, base.held_out).all(replies, adapters)


def _updates(store: Store) -> list[dict[str, object]]:
    """All that ended, refused and failed ones too, oldest first."""
    return [asdict(one) for one in store.story.figures(store.people.named(DEFAULT_USER).adapter.id)]


def _judge(store: Store, sessions: Sequence[Session]) -> dict[str, JudgeReading]:
    """What the judge made of each reaction, by user; of turns that were judged."""
    readings: dict[str, JudgeReading] = {}
    for session in sessions:
        for exchange in session.exchanges:
            votes = store.signals.votes(exchange.response_id.partition("-")[2])
            if not votes:
                continue
            wanted = 1 if exchange.mood == "satisfied" else -1
            score = sum(vote.score or 0 for vote in votes)
            reading = JudgeReading(
                reactions=1,
                right=int(score * wanted > 0),
                opposite=int(score * wanted < 0),
                corrections=int(wanted < 0),
                corrections_with_hint=int(wanted < 0 and any(vote.hint for vote in votes)),
            )
            readings[session.user] = readings.get(session.user, JudgeReading()).plus(reading)
    return readings
