"""Plays sessions of simulated users against a daemon over HTTP, as any client would, and notes what was said.

A session: the first message, a reply, the user's reaction, and so on until they are content, three replies at most.
Their last word is sent too, with room for one token of an answer: it is what the last reply is judged by. After each
session the driver waits until all of it is judged and an update that is due has ended, so that a learning curve depends
on the number of sessions, not on the speed of the machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from clawd.bench.personalize.answer_check import deals_with
from clawd.bench.personalize.memory import Memory, Messages
from clawd.bench.personalize.tasks import Task
from clawd.bench.personalize.users.persona import Mood, Persona, Voice, mood_of
from clawd.errors import BenchFailed

MOST_REPLIES = 3
REQUEST_TIMEOUT_S = 600.0
LONGEST_WAIT_S = 1800.0
POLL_S = 0.25


@dataclass(frozen=True)
class Exchange:
    """One reply, and how the user took it."""

    response_id: str
    reply: str
    mood: Mood
    reaction: str
    prompt_tokens: int


@dataclass(frozen=True)
class Session:
    user: str
    number: int  # of this user, from 0
    asked: str
    answered_by: str  # `base` or `vN`: who wrote the first reply
    satisfied: bool  # the first reply satisfies the preference
    about_task: bool  # and deals with the task
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True)
class Completion:
    id: str
    text: str
    version: str
    prompt_tokens: int


class Chat:
    """Chat completions of one daemon, where nothing may fail."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=REQUEST_TIMEOUT_S)

    def close(self) -> None:
        self._client.close()

    def complete(self, messages: Messages, *, model: str = "clawd", side: bool = False, **more: Any) -> Completion:
        """Raises BenchFailed."""
        headers = {"X-Turn-Type": "side"} if side else {}
        told = self._json(
            "POST", "/v1/chat/completions", json={"model": model, "messages": messages, **more}, headers=headers
        )
        return Completion(
            id=told["id"],
            text=told["choices"][0]["message"]["content"] or "",
            version=told["system_fingerprint"].rpartition("-")[2],
            prompt_tokens=told["usage"]["prompt_tokens"],
        )

    def status(self) -> dict[str, Any]:
        """Raises BenchFailed."""
        return self._json("GET", "/clawd/v1/status")

    def _json(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        try:
            told: dict[str, Any] = self._client.request(method, path, **more).raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            raise BenchFailed(f"{method} {path} failed: {error!r}.") from None
        return told


class Driver:
    def __init__(self, chat: Chat, voice: Voice, seed: int, learns: bool) -> None:
        self._chat = chat
        self._voice = voice
        self._seed = seed
        self._learns = learns

    def session(self, persona: Persona, task: Task, number: int, memory: Memory | None) -> Session:
        """Play one session and wait for what the daemon makes of it."""
        lot = random.Random(f"{self._seed} {persona.name} {number}")  # noqa: S311  no secret
        asked = persona.ask(task, lot)
        remembered = memory.prompt(asked) if memory else []
        messages: Messages = [*remembered, {"role": "user", "content": asked}]
        exchanges: list[Exchange] = []
        answered_by = ""
        while len(exchanges) < MOST_REPLIES and (not exchanges or exchanges[-1].mood != "satisfied"):
            completion = self._chat.complete(messages, max_tokens=persona.reply_tokens, seed=lot.randrange(2**31))
            answered_by = answered_by or completion.version
            mood = mood_of(persona, task, completion.text)
            said = self._voice.say(persona, mood, messages[-1]["content"], completion.text, lot)
            exchanges.append(Exchange(completion.id, completion.text, mood, said, completion.prompt_tokens))
            messages += [{"role": "assistant", "content": completion.text}, {"role": "user", "content": said}]
        self._chat.complete(messages, max_tokens=1)
        if memory:
            memory.hear(messages[len(remembered) :])
        self.wait()
        first = exchanges[0].reply
        return Session(
            user=persona.name,
            number=number,
            asked=asked,
            answered_by=answered_by,
            satisfied=persona.satisfies(first),
            about_task=deals_with(task, first),
            exchanges=tuple(exchanges),
        )

    def wait(self) -> None:
        """Until everything that can be judged is judged, and no update is due or under way.

        Raises:
            BenchFailed: it takes longer than any update should.
        """
        deadline = time.monotonic() + LONGEST_WAIT_S
        while self._learns and not is_settled(self._chat.status()):
            if time.monotonic() > deadline:
                raise BenchFailed(f"Waited {LONGEST_WAIT_S:.0f} s for an update in vain: see the daemon's logs.")
            time.sleep(POLL_S)


def is_settled(status: dict[str, Any]) -> bool:
    """Whether nothing will change until the next request, as far as the status tells.

    A failed update is tried again after a pause, so it is waited for; a refused one has used up its samples.
    """
    if status["turns"]["main"].get("judging", 0):
        return False
    return all(_rests(adapter) for adapter in status["adapters"])


def _rests(adapter: dict[str, Any]) -> bool:
    newest = adapter["last_update"]
    under_way = newest is not None and newest["state"] in ("running", "staged")
    return not under_way and int(adapter["samples_waiting"]) < int(adapter["samples_needed"])


def prompt_tokens(sessions: Sequence[Session]) -> list[int]:
    """Of all requests that asked for a reply."""
    return [exchange.prompt_tokens for session in sessions for exchange in session.exchanges]
