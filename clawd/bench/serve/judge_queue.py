"""A person's time to first token with the judge's queue full, against empty, in blocks that take turns.

The judge's calls are what the learner would send of real turns: its prompts, its priority, its answer length. There are
twice as many as the server runs at once, each followed by another, so that some always wait.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from clawd.bench.serve.client import TIMEOUT_S, Client, story, wait_until
from clawd.bench.serve.figures import Row, spread
from clawd.bench.sse import COMPLETIONS
from clawd.config import JudgeSettings, ServerSettings
from clawd.errors import BenchFailed
from clawd.learner.judge.prompt import judge_messages
from clawd.store.records import Turn

CALLS = 2 * ServerSettings().max_running
HEADERS = {"X-Turn-Type": "side", "X-Clawd-Priority": "background"}
ANSWER_TOKENS = 8
PAUSE_S = 0.1  # of a person between two requests, in which the judge's calls get on


@dataclass(frozen=True)
class Sizes:
    blocks: int  # of each kind
    requests: int  # per block


def measure(client: Client, turns: Sequence[Turn], sizes: Sizes) -> list[Row]:
    """`turns` are what is judged."""
    empty: list[float] = []
    full: list[float] = []
    _first_tokens(client, 2)
    for _ in range(sizes.blocks):
        empty += _first_tokens(client, sizes.requests)
        with FullQueue(client, turns):
            full += _first_tokens(client, sizes.requests)
        wait_until(lambda: _jobs(client) == 0)
    return [
        {"what": "first token", "when": when, "unit": "ms", **spread(values, 1000, 1)}
        for when, values in (("empty", empty), ("judge queue full", full))
    ]


def _first_tokens(client: Client, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        time.sleep(PAUSE_S)
        seconds.append(client.ask(story(), ANSWER_TOKENS).first_token_s)
    return seconds


def _jobs(client: Client) -> int:
    """Requests in the engine, of whatever kind."""
    engine = client.http.get("/clawd/v1/status").raise_for_status().json()["engine"]
    return int(engine["running"] + engine["waiting"] + engine["paused"])


class FullQueue:
    """Keeps `CALLS` judge calls in the server until it is left; then they hang up at once."""

    def __init__(self, client: Client, turns: Sequence[Turn]) -> None:
        self._client = client
        self._turns = turns
        self._loop = asyncio.new_event_loop()
        self._calls: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FullQueue:
        self._thread.start()
        wait_until(lambda: _jobs(self._client) == CALLS or self._failure is not None)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()
        self._loop.close()
        if self._failure is not None:
            raise BenchFailed(f"A judge's call failed: {self._failure}.") from self._failure

    def _cancel(self) -> None:
        if self._calls is not None:
            self._calls.cancel()

    def _run(self) -> None:
        self._calls = self._loop.create_task(self._call_all())
        try:
            self._loop.run_until_complete(self._calls)
        except asyncio.CancelledError:
            pass
        except BaseException as failure:  # told by the thread that leaves
            self._failure = failure

    async def _call_all(self) -> None:
        limits = httpx.Limits(max_connections=CALLS)
        headers = {**HEADERS, **self._client.http.headers}
        async with (
            httpx.AsyncClient(
                base_url=self._client.http.base_url, headers=headers, timeout=TIMEOUT_S, limits=limits
            ) as http,
            asyncio.TaskGroup() as group,
        ):
            for number in range(CALLS):
                group.create_task(self._keep_calling(http, self._turns[number % len(self._turns)]))

    async def _keep_calling(self, http: httpx.AsyncClient, turn: Turn) -> None:
        judge = JudgeSettings()
        while True:
            body = {
                "model": self._client.model,
                "messages": judge_messages(turn),
                "max_tokens": judge.max_tokens,
                "temperature": judge.temperature,
            }
            (await http.post(COMPLETIONS, json=body)).raise_for_status()
