"""What a person notices of an update: the time between the tokens of their answers beside one, over that without.

A real daemon over HTTP, whose learner trains a fixed set of samples: greedy answers to the same requests, with the same
feedback. A person reads a greedy answer of the bare base, rests a moment, asks for the next: before the update, beside
it and after it. Once with pauses for people and once without; in each round against what was idle in that round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawd.bench.daemon import throw_away_daemon
from clawd.bench.report import Goal, Report
from clawd.bench.serve.client import Client, Stream, story, wait_until
from clawd.bench.serve.figures import Row, gaps, p95, pick, spread
from clawd.bench.sse import COMPLETIONS
from clawd.config import LearnSettings, ModelSettings
from clawd.doorbell import ring
from clawd.errors import BenchFailed
from clawd.model.embedded import embedded_model_path
from clawd.model.fingerprint import fingerprint
from clawd.model.names import base_name
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import DEFAULT_USER, Adapter

GOAL = "p95_between_tokens_beside_update_over_idle"
LARGEST_RATIO = 1.5
ANSWER_TOKENS = 64
REST_S = 1.0
"""Of a person between two answers: shorter than anybody reads, so that an update has little time of its own."""
LONGEST_UPDATE_S = 1800.0
TRIES = 3  # answers per sample
ENDS = ("update.staged", "update.refused", "update.failed")
HINT = "You should have told it in one short sentence."

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    samples: int
    idle_answers: int  # before the update, and as many after it


FULL, QUICK = Sizes(16, 20), Sizes(4, 6)


def run(
    model: Path | None = None,
    *,
    quick: bool = False,
    command: str = "clawd bench update --beside",
    say: Say = lambda _: None,
) -> Report:
    """Measure with `model`, by default the embedded one. `say` gets one sentence per step, for a person.

    Raises:
        BenchFailed: a figure couldn't be measured. The daemon's folder is left for a look.
    """
    sizes, chosen = QUICK if quick else FULL, (model or embedded_model_path()).resolve()
    rows: list[Row] = []
    for pauses in (False, True):
        say(f"An update {'with' if pauses else 'without'} pauses for people")
        rows += _round(chosen, sizes, pauses)
    return Report("update-beside", command, rows, goals(rows))


def goals(rows: Sequence[Row]) -> list[Goal]:
    """As clawd comes."""
    found = pick(rows, what="update", pauses=LearnSettings().pause_when_busy)
    return [Goal(GOAL, found[0]["p95_over_idle"] if found else None, LARGEST_RATIO, "lower")]


def _round(model: Path, sizes: Sizes, pauses: bool) -> list[Row]:
    flags = {"model.path": str(model), "learn.when": "manual", "learn.pause_when_busy": str(pauses).lower()}
    with ExitStack() as held:
        daemon = held.enter_context(throw_away_daemon([part for k, v in flags.items() for part in (f"--{k}", v)]))
        store = held.enter_context(Store(daemon.folder.database))
        adapter = store.people.named(DEFAULT_USER).adapter
        user, person = Client(daemon.url), Client(daemon.url, model=base_name(ModelSettings(), model))
        held.callback(user.close)
        held.callback(person.close)
        supply(user, store, adapter, fingerprint(model, daemon.folder.cache), sizes.samples)
        wait_until(lambda: any(daemon.folder.cache.glob("dense-*")), 600)  # made ahead, beside the first sample
        read(person, 2)
        idle = read(person, sizes.idle_answers)
        beside, facts = read_beside(person, daemon.folder, store, adapter)
        idle += read(person, sizes.idle_answers)
    return rows(idle, beside, facts, pauses)


def supply(user: Client, store: Store, adapter: Adapter, base: str, count: int) -> None:
    """Samples by a person's feedback: praise and rejection in turns, every rejection with a hint.

    An answer that is none makes no sample; another is asked for in its place.

    Raises:
        BenchFailed: the learner made too few samples.
    """
    made = 0
    for number in range(TRIES * count):
        body = {"model": user.model, "messages": story(number), "max_tokens": 150, "temperature": 0}
        answer = user.http.post(COMPLETIONS, json=body).raise_for_status().json()
        verdict = {"score": -1, "hint": HINT} if made % 2 else {"score": 1}
        user.http.post("/clawd/v1/feedback", json={"response_id": answer["id"], **verdict}).raise_for_status()
        wait_until(lambda: not store.turns.to_judge(1), 60)
        made = store.signals.waiting(adapter.id, base)
        if made == count:
            return
    raise BenchFailed(f"The learner made {made} samples of {TRIES * count} answers: the model's are too short.")


def read(person: Client, answers: int) -> list[Stream]:
    """One answer after another."""
    return [_read_one(person) for _ in range(answers)]


def _read_one(person: Client) -> Stream:
    stream = person.ask(story(), ANSWER_TOKENS)
    time.sleep(REST_S)
    return stream


def read_beside(person: Client, folder: DataFolder, store: Store, adapter: Adapter) -> tuple[list[Stream], Row]:
    """Answers while an update runs; what of them came within it, and what the update says of itself.

    Raises:
        BenchFailed: it doesn't begin, fails or doesn't end.
    """
    store.lifecycle.ask_update(adapter.id)
    ring(folder.learner_bell)
    wait_until(lambda: store.updates.newest(adapter.id) is not None, 60)
    update = store.updates.newest(adapter.id)
    assert update is not None
    streams: list[Stream] = []
    while (end := store.newest_event(ENDS, update.id)) is None:
        streams.append(_read_one(person))
        if time.time() - update.started_at > LONGEST_UPDATE_S:
            raise BenchFailed(f"The update didn't end within {LONGEST_UPDATE_S:.0f} s.")
    told: dict[str, Any] = json.loads(end["detail"])
    if end["kind"] == "update.failed":
        raise BenchFailed(f"The update failed: {told['reason']}")
    return [stream for stream in streams if stream.began_at <= end["at"]], {
        "ended": end["kind"].removeprefix("update."),
        "ended_at": end["at"],
        "seconds": round(end["at"] - update.started_at, 1),
        "paused_s": round(told["metrics"]["train/paused_s"], 1),
        "tokens_per_s": round(told["metrics"].get("train/tokens_per_s", 0.0)),
    }


def rows(idle: Sequence[Stream], beside: Sequence[Stream], facts: Row, pauses: bool) -> list[Row]:
    """From what was seen to what is told. A token that came after the update's end counts for nothing."""
    ended_at = facts.pop("ended_at")
    apart = {
        "idle": [gap for stream in idle for _, gap in gaps(stream.token_times)],
        "beside": [gap for stream in beside for at, gap in gaps(stream.token_times) if at <= ended_at],
    }
    told: list[Row] = [
        {"what": "between tokens", "pauses": pauses, "when": when, "unit": "ms", **spread(values, 1000, 1)}
        for when, values in apart.items()
    ]
    firsts = {
        when: [stream.first_token_s for stream in streams] for when, streams in (("idle", idle), ("beside", beside))
    }
    told += [
        {"what": "first token", "pauses": pauses, "when": when, "unit": "ms", **spread(values, 1000, 1)}
        for when, values in firsts.items()
    ]
    ratio = p95(apart["beside"]) / p95(apart["idle"])
    return [*told, {"what": "update", "pauses": pauses, **facts, "p95_over_idle": round(ratio, 2)}]
