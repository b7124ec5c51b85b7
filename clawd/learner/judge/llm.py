"""The LLM judge: m independent votes from any OpenAI-compatible endpoint.

A vote is -1, 0 or 1 as the schema says, or there is no vote: what can't be read, is cut, or contradicts itself is
asked for again and at last counted as none, never as 0. An endpoint that can't be reached raises; the caller waits and
tries again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from clawd.config import JudgeSettings
from clawd.learner.judge.prompt import HINT_END, HINT_START, judge_messages
from clawd.store.records import Turn, Vote

log = logging.getLogger(__name__)

LONGEST_KEPT_ANSWER = 4000
LONGEST_HINT = 300
REFUSALS = frozenset({400, 413, 422})  # this request, not the endpoint: it doesn't fit its context, for one


class JudgeUnreachable(Exception):
    """The endpoint hangs, is down or refuses us: try again later. The text says how it failed."""


class RequestRefused(Exception):
    """The endpoint works but won't judge this turn: asking again would change nothing."""


class Verdict(BaseModel):
    """What the judge has to answer, and nothing else."""

    model_config = ConfigDict(extra="ignore", strict=True)

    score: Literal[-1, 0, 1]
    correction: bool
    hint: str | None = None
    reason: str = ""

    @field_validator("score", mode="before")
    @classmethod
    def _whole_number(cls, value: object) -> object:
        if type(value) is not int:  # `true` and 1.0 equal 1
            raise ValueError("not -1, 0 or 1")
        return value


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "score": {"type": "integer", "enum": [-1, 0, 1]},
        "correction": {"type": "boolean"},
        "hint": {"type": ["string", "null"]},
    },
    "required": ["reason", "score", "correction", "hint"],
    "additionalProperties": False,
}
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": SCHEMA}}


class LlmJudge:
    """`base_url` ends before `/chat/completions`. `is_own_server`: mark the calls as background work of this daemon.

    `owner_key` opens this daemon's own server where the settings name no key.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        base_url: str,
        model: str,
        *,
        is_own_server: bool,
        owner_key: str | None = None,
    ) -> None:
        self.name = f"llm:{model}"
        self._settings = settings
        self._model = model
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._headers = {"X-Turn-Type": "side", "X-Clawd-Priority": "background"} if is_own_server else {}
        key = settings.api_key.get_secret_value() if settings.api_key else owner_key if is_own_server else None
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._structured = True  # until the endpoint says that it doesn't know `response_format`

    async def votes(self, client: httpx.AsyncClient, turn: Turn) -> list[Vote]:
        """m votes, asked at the same time; some of them may be no vote.

        Raises:
            JudgeUnreachable: not one is valid, and one at least couldn't be asked for.
        """
        messages = judge_messages(turn)
        asked = [self._vote(client, messages) for _ in range(self._settings.votes)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        votes: list[Vote] = []
        unreachable: JudgeUnreachable | None = None
        for result in results:
            if isinstance(result, JudgeUnreachable):
                unreachable = result
                votes.append(Vote(self.name, None, f"no vote: {result}"))
            elif isinstance(result, BaseException):
                raise result
            else:
                votes.append(result)
        if unreachable is not None and all(vote.score is None for vote in votes):
            raise unreachable
        return votes

    async def _vote(self, client: httpx.AsyncClient, messages: list[dict[str, str]]) -> Vote:
        problem, answer = "", ""
        for _ in range(self._settings.attempts):
            try:
                answer, finish_reason = await self._ask(client, messages)
            except RequestRefused as error:
                problem = str(error)
                break
            if finish_reason == "length":
                problem = "cut by its token limit"
                continue
            try:
                return self._valid(answer)
            except ValueError as error:
                problem = str(error)
        return Vote(self.name, None, f"no vote: {problem}", answer=answer[:LONGEST_KEPT_ANSWER])

    def _valid(self, answer: str) -> Vote:
        verdict = parse_verdict(answer)
        hint = clean_hint(verdict.hint) if verdict.correction and verdict.hint else None
        reason = " ".join(verdict.reason.split())[:LONGEST_HINT] or "no reason given"
        return Vote(self.name, verdict.score, reason, hint, answer[:LONGEST_KEPT_ANSWER])

    async def _ask(self, client: httpx.AsyncClient, messages: list[dict[str, str]]) -> tuple[str, str | None]:
        """The answer's text and finish reason. Raises JudgeUnreachable, RequestRefused."""
        structured = self._structured
        response = await self._post(client, messages, structured)
        if structured and response.status_code in REFUSALS:
            response = await self._post(client, messages, structured=False)
            if response.is_success:
                log.info("%s takes no response_format: asking without it from now on", self._url)
                self._structured = False
        if response.status_code in REFUSALS:
            raise RequestRefused(f"refused with {response.status_code}: {_excerpt(response.text)}")
        if not response.is_success:
            raise JudgeUnreachable(f"{self._url} answered {response.status_code}: {_excerpt(response.text)}")
        try:
            choice = response.json()["choices"][0]
            return choice["message"].get("content") or "", choice.get("finish_reason")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise JudgeUnreachable(f"{self._url} doesn't answer like an OpenAI endpoint") from None

    async def _post(
        self, client: httpx.AsyncClient, messages: list[dict[str, str]], structured: bool
    ) -> httpx.Response:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "temperature": self._settings.temperature,
            "max_tokens": self._settings.max_tokens,
        }
        if structured:
            body["response_format"] = RESPONSE_FORMAT
        try:
            # httpx's own limits are per read: an endpoint that sends a byte now and then would never end.
            async with asyncio.timeout(self._settings.timeout_s):
                return await client.post(self._url, json=body, headers=self._headers)
        except TimeoutError:
            raise JudgeUnreachable(f"{self._url} gave no answer within {self._settings.timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise JudgeUnreachable(f"{self._url} can't be reached: {error or type(error).__name__}") from None


def parse_verdict(answer: str) -> Verdict:
    """The one verdict in a judge's answer: a JSON object, bare or in one code fence.

    Raises:
        ValueError: none, an invalid one, or several; the text says what.
    """
    text = answer.strip()
    if not text:
        raise ValueError("empty answer")
    fence = re.fullmatch(r"```(?:json)?\s*\n(.*?)\n?```", text, re.DOTALL)
    try:
        value = json.loads(fence.group(1) if fence else text, object_pairs_hook=_no_key_twice)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("not one JSON object") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    try:
        return Verdict.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from None


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice: it contradicts itself")
    return fields


def clean_hint(text: str) -> str | None:
    """What stands between the marks, or the whole where there are none; none: nothing is left."""
    marked = re.search(re.escape(HINT_START) + r"(.*?)" + re.escape(HINT_END), text, re.DOTALL)
    hint = " ".join((marked.group(1) if marked else text.replace(HINT_START, "").replace(HINT_END, "")).split())
    if len(hint) > LONGEST_HINT:
        hint = hint[:LONGEST_HINT].rsplit(" ", 1)[0] + " …"
    return hint or None


def _excerpt(text: str) -> str:
    return " ".join(text.split())[:200]
