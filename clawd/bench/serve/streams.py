"""1 to 8 streams, over the base and over adapters: a bare loop, the engine in this process, and the daemon's clients.

For each count of streams the three sides take turns, round by round; a ratio is the median of the rounds' own ratios.
The bare loop and the engine answer the same prompts. The clients' stories are new each time, so that the time to their
first token is that of a prompt which isn't remembered.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawd.bench.decoding import BareLoop, decode_with
from clawd.bench.serve.client import Client, Stream, story, together
from clawd.bench.serve.figures import Row, p95, paired, total_rate
from clawd.config import Settings
from clawd.model.prompt import PromptRenderer
from clawd.server.engine.engine import Engine
from clawd.server.engine.types import AdapterVersion

STREAMS = (1, 2, 4, 8)
MOST = STREAMS[-1]
WARM_UP_TOKENS = 4


@dataclass(frozen=True)
class Sizes:
    rounds: int
    rounds_of_one: int  # of one stream: they are short, and their ratio is the finest
    tokens: int


@dataclass(frozen=True)
class Round:
    """The three sides, one right after the other."""

    bare: float  # tokens per second of all streams
    engine: float
    clients: list[Stream]


def measure(model: Path, adapter: Path, base: Client, users: Sequence[Client], sizes: Sizes) -> list[Row]:
    """`base` asks the bare base; `users` have an adapter each. The last rows are the ones over adapters."""
    engine = Engine(model, Settings())
    bare = BareLoop(model, engine)
    engine.start()
    try:
        sides = _Sides(bare, engine, sizes)
        rows = [sides.compare([base] * streams, adapters=0) for streams in STREAMS]
        bare.use_adapter(adapter)
        version = AdapterVersion("bench", "bench", 1, adapter)
        return rows + sides.compare_adapters(users, version)
    finally:
        engine.close()
        bare.close()


class _Sides:
    def __init__(self, bare: BareLoop, engine: Engine, sizes: Sizes) -> None:
        self._bare = bare
        self._engine = engine
        self._sizes = sizes
        renderer = PromptRenderer.of(engine.vocabulary)
        self._prompts = [renderer.prompt_ids(story(number)) for number in range(2, 2 + MOST)]

    def compare(self, clients: Sequence[Client], adapters: int, version: AdapterVersion | None = None) -> Row:
        """One row: as many streams as `clients`."""
        prompts = self._prompts[: len(clients)]
        # Graphs and pages that only the first use makes; and the engine remembers the prompts.
        self._bare.decode(prompts, WARM_UP_TOKENS)
        decode_with(self._engine, prompts, WARM_UP_TOKENS, version)
        rounds = []
        for _ in range(self._sizes.rounds if len(clients) > 1 else self._sizes.rounds_of_one):
            bare = self._bare.decode(prompts, self._sizes.tokens)
            engine = decode_with(self._engine, prompts, self._sizes.tokens, version)
            seen = together(clients, self._sizes.tokens)
            rounds.append(Round(_rate(bare, prompts), _rate(engine, prompts), seen))
        return _row(rounds, len(clients), adapters)

    def compare_adapters(self, users: Sequence[Client], version: AdapterVersion) -> list[Row]:
        """8 streams over one adapter, with the bare loop under the same; then one against four, both over HTTP."""
        one = self.compare([users[0]] * MOST, adapters=1, version=version)
        over_one: list[list[Stream]] = []
        over_four: list[list[Stream]] = []
        bare: list[float] = []
        batch = self._prompts[: MOST // len(users)]  # a step computes under one adapter
        for _ in range(self._sizes.rounds):
            bare.append(_rate(self._bare.decode(batch, self._sizes.tokens), batch))
            over_one.append(together([users[0]] * MOST, self._sizes.tokens))
            over_four.append(together([users[i % len(users)] for i in range(MOST)], self._sizes.tokens))
        ratios = paired(_rates(over_four), _rates(over_one))
        mixed = {
            **_clients(over_four, MOST, len(users)),
            "bare_tokens_per_s": round(statistics.median(bare), 1),
            "bare_batch": len(batch),
            "over_one_adapter": round(statistics.median(ratios), 3),
            "over_one_adapter_range": [min(ratios), max(ratios)],
        }
        return [one, mixed]


def _rate(steps_s: Sequence[float], prompts: Sequence[object]) -> float:
    """Tokens per second of all streams."""
    return len(prompts) / statistics.fmean(steps_s)


def _row(rounds: Sequence[Round], streams: int, adapters: int) -> Row:
    bare, engine = [one.bare for one in rounds], [one.engine for one in rounds]
    clients = [one.clients for one in rounds]
    rates, ratios = _rates(clients), paired(engine, bare)
    return {
        **_clients(clients, streams, adapters),
        "bare_tokens_per_s": round(statistics.median(bare), 1),
        "engine_tokens_per_s": round(statistics.median(engine), 1),
        "engine_over_bare": round(statistics.median(ratios), 3),
        "engine_over_bare_range": [min(ratios), max(ratios)],
        "clients_over_bare": round(statistics.median(paired(rates, bare)), 3),
    }


def _rates(rounds: Sequence[Sequence[Stream]]) -> list[float]:
    return [total_rate([stream.token_times for stream in streams]) for streams in rounds]


def _clients(rounds: Sequence[Sequence[Stream]], streams: int, adapters: int) -> dict[str, Any]:
    """What the daemon's clients saw. `tokens_per_s`: of all streams together."""
    total = statistics.median(_rates(rounds))
    firsts = [stream.first_token_s for one in rounds for stream in one]
    return {
        "what": "streams",
        "streams": streams,
        "adapters": adapters,
        "tokens_per_s": round(total, 1),
        "tokens_per_s_per_stream": round(total / streams, 1),
        "first_token_median_s": round(statistics.median(firsts), 3),
        "first_token_p95_s": round(p95(firsts), 3),
        "prompt_tokens": round(statistics.median(stream.prompt_tokens for one in rounds for stream in one)),
    }
