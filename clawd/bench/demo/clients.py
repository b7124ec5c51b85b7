"""The demo's two clients, over plain HTTP: the user who chats and reacts, and one that streams all the while."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from clawd.bench.demo.persona import Mood, Persona
from clawd.bench.sse import sse_events

ANSWER_TOKENS = 90
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Call:
    """One request that was made. `error` None: it went well."""

    began_at: float  # Unix seconds
    first_token_s: float | None  # none: not streamed, or no token came
    fingerprint: str | None
    error: str | None = None


class Api:
    """Chat completions of one daemon; every call is kept, so that not one failure goes unseen."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S)
        self._lock = threading.Lock()
        self.calls: list[Call] = []

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        """A JSON document of the daemon's own API."""
        response = self._client.get(path)
        response.raise_for_status()
        return response.json()

    def chat(self, messages: list[dict[str, str]], model: str = "clawd", **more: Any) -> dict[str, Any] | None:
        """A whole completion; None: it failed, and is among `calls` with the reason."""
        began = time.time()
        headers = more.pop("headers", {})
        try:
            response = self._client.post(
                "/v1/chat/completions", json={"model": model, "messages": messages, **more}, headers=headers
            )
            response.raise_for_status()
            completion: dict[str, Any] = response.json()
        except httpx.HTTPError as error:
            self._note(Call(began, None, None, str(error)))
            return None
        self._note(Call(began, None, completion["system_fingerprint"]))
        return completion

    def stream(self, messages: list[dict[str, str]], headers: dict[str, str], **more: Any) -> Call:
        """Read a stream to its end and note the time to its first token."""
        began = time.time()
        first: float | None = None
        fingerprint: str | None = None
        body = {"model": "clawd", "messages": messages, "stream": True, **more}
        try:
            for at, data in sse_events(self._client, body, headers):
                chunk = json.loads(data)
                fingerprint = chunk["system_fingerprint"]
                choices = chunk["choices"]
                if first is None and choices and choices[0]["delta"].get("content"):
                    first = at - began
            call = Call(began, first, fingerprint)
        except (httpx.HTTPError, KeyError, ValueError) as error:
            call = Call(began, first, fingerprint, f"{type(error).__name__}: {error}")
        self._note(call)
        return call

    def _note(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)

    def failures(self) -> list[Call]:
        with self._lock:
            return [call for call in self.calls if call.error is not None]


@dataclass(frozen=True)
class Exchange:
    """What the user asked or said, what they got, and how they took it."""

    said: str
    answer: str
    mood: Mood
    response_id: str


class ChattingUser:
    """Asks, and reacts to the answer until it satisfies, three answers at most. Sends no special header."""

    MOST_ANSWERS = 3

    def __init__(self, api: Api, persona: Persona) -> None:
        self._api = api
        self._persona = persona

    def session(self, question: str, seed: int) -> list[Exchange]:
        """One conversation. The user's last word is sent too: it is what the last answer is judged by."""
        messages = [{"role": "user", "content": question}]
        exchanges: list[Exchange] = []
        for number in range(self.MOST_ANSWERS):
            completion = self._api.chat(messages, max_tokens=ANSWER_TOKENS, seed=seed + number)
            if completion is None:
                break
            answer = completion["choices"][0]["message"]["content"]
            reaction = self._persona.react(answer)
            exchanges.append(Exchange(messages[-1]["content"], answer, reaction.mood, completion["id"]))
            messages = [
                *messages,
                {"role": "assistant", "content": answer},
                {"role": "user", "content": reaction.text},
            ]
            if reaction.mood == "satisfied":
                break
        # One token is enough: nothing follows the answer to a goodbye.
        self._api.chat(messages, max_tokens=1)
        return exchanges


@dataclass
class Streamer:
    """Streams short answers one after another in a thread, as a side conversation that teaches nothing."""

    api: Api
    pause_s: float = 0.5
    calls: list[Call] = field(default_factory=list)
    _should_exit: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="streamer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._should_exit.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def failed(self) -> bool:
        return any(call.error is not None for call in self.calls)

    def _run(self) -> None:
        number = 0
        while not self._should_exit.wait(self.pause_s):
            number += 1
            messages = [{"role": "user", "content": f"Count from {number} to {number + 9}."}]
            self.calls.append(self.api.stream(messages, {"X-Turn-Type": "side"}, max_tokens=24))

    def first_tokens(self, wanted: Callable[[Call], bool]) -> list[float]:
        """Seconds to the first token of the calls that `wanted` picks."""
        return [call.first_token_s for call in self.calls if call.first_token_s is not None and wanted(call)]
