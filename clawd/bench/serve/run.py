"""The benchmark from beginning to end: a throw-away daemon, users with adapters, each measurement, the report.

What a client would see is measured over HTTP on a real daemon with default settings, but for learning, which is off so
that no update takes the machine's time. The quotients against a bare loop are taken in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from clawd.bench import start
from clawd.bench.daemon import throw_away_daemon
from clawd.bench.report import Report
from clawd.bench.serve import judge_queue, long_session, streams, swaps
from clawd.bench.serve.adapters import Adapters, Swap
from clawd.bench.serve.client import Client
from clawd.bench.serve.figures import Row, goals
from clawd.config import ModelSettings
from clawd.model.embedded import embedded_model_path
from clawd.model.names import base_name
from clawd.model.vocab import Vocabulary
from clawd.store import Store
from clawd.store.records import Turn, User

USERS = 4
WARM_TOKENS = 240  # and the template's: just more than a swap bothers to read ahead
SHARE_OF_CONTEXT = 0.37  # a long session lies in the cache twice while it is warmed

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    streams: streams.Sizes
    long_sessions: int  # at most one less than there are users
    long_tokens: int
    swaps: int
    warm: bool  # the last swap has something to read ahead
    judge_queue: judge_queue.Sizes
    starts: int


FULL = Sizes(streams.Sizes(3, 10, 32), 3, 3000, 20, True, judge_queue.Sizes(5, 8), 3)
QUICK = Sizes(streams.Sizes(1, 2, 32), 1, 1000, 4, False, judge_queue.Sizes(1, 8), 1)


def run(
    model: Path | None = None, *, quick: bool = False, command: str = "clawd bench serve", say: Say = lambda _: None
) -> Report:
    """Measure with `model`, by default the embedded one. `say` gets one sentence per step, for a person.

    Raises:
        BenchFailed: a figure couldn't be measured. The daemon's folder is left for a look.
    """
    rows = measure((model or embedded_model_path()).resolve(), QUICK if quick else FULL, say)
    return Report("serve", command, rows, goals(rows))


def measure(model: Path, sizes: Sizes, say: Say) -> list[Row]:
    """All rows. Raises BenchFailed as `run`."""
    say("Starting daemons")
    rows: list[Row] = [{"what": "model", "file": model.name, "megabytes": round(model.stat().st_size / 1e6, 1)}]
    for number in range(sizes.starts):
        rows.append({"what": "start", "round": number + 1, "ready_s": round(start.ready_s(), 2)})
    with _ready_daemon(model, sizes) as bench:
        return rows + bench.measure(say)


@dataclass(frozen=True)
class _Bench:
    model: Path
    store: Store
    adapters: Adapters
    users: Sequence[User]
    clients: Sequence[Client]  # of the users
    base: Client  # asks the bare base
    vocabulary: Vocabulary
    sizes: Sizes

    def measure(self, say: Say) -> list[Row]:
        say("Streams: bare loop, engine and clients in turns")
        rows = streams.measure(self.model, self.adapters.files[0], self.base, self.clients, self.sizes.streams)
        say("Long sessions, with swaps")
        rows += [self._long_session(number) for number in range(1, 1 + self.sizes.long_sessions)]
        say(f"{self.sizes.swaps} swaps under {swaps.STREAMS} streams")
        rows += swaps.measure(self.clients[0], self.sizes.swaps, lambda: self._swap(0), self._hold)
        say("The judge's queue")
        return rows + judge_queue.measure(self.base, self._judged(), self.sizes.judge_queue)

    def _long_session(self, number: int) -> Row:
        tokens = min(self.sizes.long_tokens, self._room())
        text = long_session.long_text(self.vocabulary, number, tokens)
        return long_session.measure(self.clients[number], text, lambda: self._swap(number))

    def _room(self) -> int:
        status = self.base.http.get("/clawd/v1/status").raise_for_status().json()
        return int(SHARE_OF_CONTEXT * status["model"]["context_tokens"])

    def _swap(self, number: int) -> Swap:
        """The next version of a user's adapter, from another file than the one that answers."""
        user = self.users[number]
        place = number + len(self.store.updates.versions(user.adapter.id))
        return self.adapters.publish(user, self.adapters.files[place % len(self.adapters.files)])

    def _hold(self) -> int:
        """Open a conversation that is worth warming; its prompt's tokens. 0: this size of the benchmark has none."""
        if not self.sizes.warm:
            return 0
        first = long_session.long_text(self.vocabulary, 0, WARM_TOKENS)
        return self.clients[0].ask([{"role": "user", "content": first}], 1).prompt_tokens

    def _judged(self) -> list[Turn]:
        return [self.store.turns.get(turn_id) for turn_id in self.adapters.judged[: judge_queue.CALLS]]


@contextmanager
def _ready_daemon(model: Path, sizes: Sizes) -> Iterator[_Bench]:
    """A daemon on `model` with users, each of whom has an adapter that answers and samples for its further versions."""
    with ExitStack() as held:
        flags = ["--learn.enabled", "false", "--model.path", str(model)]
        daemon = held.enter_context(throw_away_daemon(flags))
        store = held.enter_context(Store(daemon.folder.database))
        vocabulary = held.enter_context(Vocabulary.open(model))
        adapters = Adapters(daemon.folder, store, model, USERS)
        people = [store.people.add(f"bench-{number}") for number in range(USERS)]
        clients = [Client(daemon.url, key) for _, key in people]
        base = Client(daemon.url, model=base_name(ModelSettings(), model))
        for client in (*clients, base):
            held.callback(client.close)
        for number, (user, _) in enumerate(people):
            adapters.supply(clients[number], user, 1 + (1 if number else sizes.swaps))
            adapters.publish(user, adapters.files[number])
        yield _Bench(model, store, adapters, [user for user, _ in people], clients, base, vocabulary, sizes)
