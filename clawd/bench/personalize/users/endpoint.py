"""A model as the user's voice: any OpenAI-compatible endpoint puts the mood into words of its own.

What satisfies is decided by the same function of the reply as for the scripted user: only the words differ.
"""

from __future__ import annotations

import random

import httpx

from clawd.bench.personalize.users.persona import Mood, Persona
from clawd.errors import BenchFailed

TIMEOUT_S = 120.0
TOKENS = 60

INSTRUCTION = (
    "You play a person who talks to an assistant. What this person wants of its replies: {wish}\n"
    "The person asked:\n{question}\n\nThe assistant replied:\n{reply}\n\n"
    "{mood} Write the person's next message, one or two sentences in everyday words, and nothing else."
)
MOODS: dict[Mood, str] = {
    "satisfied": "The person is content with it and says so.",
    "corrects": "The reply isn't how the person wants it, and they say what should be different.",
    "lost": "The reply isn't about the question at all, and the person says so.",
}


class EndpointVoice:
    def __init__(self, url: str, model: str, key: str | None = None) -> None:
        """`url` up to and with `/v1`."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=url.rstrip("/") + "/", headers=headers, timeout=TIMEOUT_S)
        self._model = model

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> EndpointVoice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def say(self, persona: Persona, mood: Mood, question: str, reply: str, lot: random.Random) -> str:
        """Raises BenchFailed: the endpoint doesn't answer, or with nothing."""
        content = INSTRUCTION.format(wish=persona.wish, question=question, reply=reply, mood=MOODS[mood])
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": TOKENS,
            "seed": lot.randrange(2**31),
        }
        try:
            answer = self._client.post("chat/completions", json=body).raise_for_status().json()
            text = str(answer["choices"][0]["message"]["content"] or "").strip()
        except (httpx.HTTPError, ValueError, KeyError, IndexError) as error:
            raise BenchFailed(f"The user's endpoint {self._client.base_url} failed: {error!r}.") from None
        if not text:
            raise BenchFailed(f"The user's endpoint {self._client.base_url} said nothing.")
        return text
