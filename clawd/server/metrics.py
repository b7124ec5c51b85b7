"""`GET /metrics`: figures for Prometheus, names in base units. What engine and store know is read when asked."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from clawd.server.engine.engine import Engine
from clawd.server.structure import Structure
from clawd.store import Store

SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)

GAUGES = {
    "running": "Requests that are being answered",
    "waiting": "Requests that wait for a place",
    "paused": "Background requests that stand back for people",
    "remembered": "Conversations whose key-value state is kept",
    "cells_used": "Tokens in the key-value cache",
    "cells_total": "Tokens that the key-value cache holds",
    "versions_loaded": "Adapter versions in memory",
    "saved_states": "Conversations whose key-value state lies on disk",
}
COUNTERS = {
    "prompt_tokens": "Prompt tokens that were read",
    "cached_tokens": "Prompt tokens that were remembered",
    "response_tokens": "Tokens that were sampled",
    "steps": "Decoding steps",
    "broken_off": "Steps for background requests that were given up when a person came",
    "restored_tokens": "Tokens whose key-value state was read from disk",
}


class Metrics:
    """Counts answers as they end; the rest is collected at the time of asking."""

    def __init__(self, engine: Engine, store: Store, structure: Structure) -> None:
        self._engine = engine
        self._structure = structure
        self._store = store
        self._registry = CollectorRegistry()
        self._requests = Counter("clawd_requests", "Chat requests by how they ended", ["end"], registry=self._registry)
        self._first_token = Histogram(
            "clawd_first_token_seconds",
            "From acceptance to the first token",
            buckets=SECONDS,
            registry=self._registry,
        )
        self._duration = Histogram(
            "clawd_request_duration_seconds", "From acceptance to the end", buckets=SECONDS, registry=self._registry
        )
        self._registry.register(self)

    def answered(self, end: str, first_token_s: float | None, duration_s: float) -> None:
        """One request has ended. `first_token_s` None: it had no token."""
        self._requests.labels(end).inc()
        self._duration.observe(duration_s)
        if first_token_s is not None:
            self._first_token.observe(first_token_s)

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What the registry asks for at each scrape."""
        stats = self._engine.stats()
        for name, sentence in GAUGES.items():
            yield GaugeMetricFamily(f"clawd_engine_{name}", sentence, value=getattr(stats, name))
        for name, sentence in COUNTERS.items():
            yield CounterMetricFamily(f"clawd_engine_{name}", sentence, value=getattr(stats, name))
        loosened = CounterMetricFamily(
            "clawd_schemas_loosened", "JSON schemas that are enforced partly or not at all", labels=["how"]
        )
        for how, count in list(self._structure.loosened.items()):
            loosened.add_metric([how], count)
        yield loosened
        turns = GaugeMetricFamily("clawd_turns", "Main-line turns in the store by state", labels=["state"])
        for state, count in self._store.turns.counts().items():
            turns.add_metric([state], count)
        yield turns
        samples = GaugeMetricFamily("clawd_samples", "Samples in the store by state", labels=["state"])
        for state, count in self._store.signals.counts().items():
            samples.add_metric([state], count)
        yield samples
