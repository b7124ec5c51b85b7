"""Clients of the daemon under test, over plain HTTP: one stream, several at once, and a load that keeps going."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from clawd.bench.sse import sse_events
from clawd.errors import BenchFailed

TIMEOUT_S = 300.0

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Stream:
    """One streamed answer as its client saw it. Times are Unix seconds."""

    began_at: float
    token_times: tuple[float, ...]  # of events that carry text
    ended_at: float
    text: str
    version: str  # `base` or `vN`; "" if it failed before it was told
    prompt_tokens: int
    cached_tokens: int
    error: str | None = None  # none: it went well

    @property
    def first_token_s(self) -> float:
        return self.token_times[0] - self.began_at


class Client:
    """One user of one daemon."""

    def __init__(self, url: str, key: str | None = None, model: str = "clawd") -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.model = model
        self.http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S)

    def close(self) -> None:
        self.http.close()

    def stream(self, messages: Messages, max_tokens: int, **headers: str) -> Stream:
        """Read a greedy answer to its end; a failure is told in the result."""
        began_at = time.time()
        events: list[tuple[float, str]] = []
        error: str | None = None
        body = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "max_tokens": max_tokens,
        }
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            # Parsed when it has ended: the client shares the machine with what it measures.
            events.extend(sse_events(self.http, body, named))
        except (httpx.HTTPError, ValueError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        return _read(began_at, events, error)

    def ask(self, messages: Messages, max_tokens: int, **headers: str) -> Stream:
        """As `stream`, where nothing may fail.

        Raises:
            BenchFailed: it did, or the answer was empty.
        """
        stream = self.stream(messages, max_tokens, **headers)
        if stream.error or not stream.token_times:
            raise BenchFailed(f"A request failed: {stream.error or 'its answer is empty'}.")
        return stream


def _read(began_at: float, events: Sequence[tuple[float, str]], error: str | None) -> Stream:
    times, pieces, version = [], [], ""
    usage: dict[str, Any] = {}
    for at, data in events:
        chunk = json.loads(data)
        if "error" in chunk:
            error = str(chunk["error"].get("message"))
            continue
        version = chunk["system_fingerprint"].rpartition("-")[2]
        usage = chunk.get("usage") or usage
        text = chunk["choices"][0]["delta"].get("content") if chunk["choices"] else None
        if text:
            times.append(at)
            pieces.append(text)
    return Stream(
        began_at=began_at,
        token_times=tuple(times),
        ended_at=time.time() if not events else events[-1][0],
        text="".join(pieces),
        version=version,
        prompt_tokens=usage.get("prompt_tokens", 0),
        cached_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
        error=error,
    )


_numbers = itertools.count(2)


def story(number: int | None = None) -> Messages:
    """A request whose answer is long. Each is new from its first words on, unless `number` is given."""
    ships = next(_numbers) if number is None else number
    return [{"role": "user", "content": f"{ships} ships set out to sea. Write a long story about them."}]


def together(clients: Sequence[Client], max_tokens: int) -> list[Stream]:
    """One new story of each client (one may be named several times), all at the same time."""
    requests = [(client, story()) for client in clients]
    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(lambda request: request[0].ask(request[1], max_tokens), requests))


class Load:
    """`count` streams that are kept going: each worker begins a new story when its answer has ended."""

    def __init__(self, client: Client, count: int, max_tokens: int) -> None:
        self.streams: list[list[Stream]] = [[] for _ in range(count)]
        self._client = client
        self._max_tokens = max_tokens
        self._should_exit = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(mine,), daemon=True) for mine in self.streams]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._should_exit.set()
        for thread in self._threads:
            thread.join()

    def all(self) -> list[Stream]:
        return [stream for mine in self.streams for stream in mine]

    def wait_for_turnover(self) -> None:
        """Until every worker has ended what it is at now: afterwards nothing runs that began before this call."""
        ended = [len(mine) for mine in self.streams]
        wait_until(lambda: all(len(mine) > before for mine, before in zip(self.streams, ended, strict=True)))

    def _work(self, mine: list[Stream]) -> None:
        while not self._should_exit.is_set():
            stream = self._client.stream(story(), self._max_tokens)
            mine.append(stream)
            if stream.error:
                time.sleep(0.1)  # it is counted; no storm of requests at a server that refuses


def wait_until(done: Callable[[], bool], within_s: float = TIMEOUT_S) -> None:
    """Look every few milliseconds.

    Raises:
        BenchFailed: it didn't come about.
    """
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            raise BenchFailed(f"Waited {within_s:.0f} s in vain; the machine is too busy, or the daemon hangs.")
        time.sleep(0.01)
