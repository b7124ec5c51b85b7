"""One request from its acceptance to its stored answer.

`accept` decides all that needs the store: which version, which session, what it says about the turn before.
`Exchange` then carries the engine's events to whoever writes them out. The answer is stored before its end goes on,
so that a client's next request finds it; and it is stored too when the client has gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

from clawd.errors import ContextOverflow
from clawd.model.replies.deltas import Reply
from clawd.model.replies.parser import Parser
from clawd.server.engine.engine import Handle
from clawd.server.engine.types import Event, Finished, GenerationRequest, Priority, Token
from clawd.server.openai_chat.messages import for_template
from clawd.server.openai_chat.schema import ChatRequest, of_answer
from clawd.server.services import Services
from clawd.server.sessions.conversation import hash_with_response, request_hash
from clawd.server.sessions.kinds import is_openclaw
from clawd.server.sessions.place import Placement, place
from clawd.server.versions import Target
from clawd.store import Store
from clawd.store.records import Message, NewTurn, Response, User

log = logging.getLogger(__name__)

PRIORITY_HEADER = "x-clawd-priority"
TEMPLATE_ARGUMENTS = "template_arguments"

FULL = 0.9
OPENCLAW_FULL = 0.5
"""Shares of the context from which a prompt with one token left is an overflow; OpenClaw's estimate runs high."""


@dataclass(frozen=True)
class Accepted:
    turn_id: str
    placement: Placement
    target: Target
    messages: list[Message]  # as rendered
    generation: GenerationRequest
    new_parser: Callable[[], Parser]  # reads the answer's text
    answers: int = 1  # that were asked for; of more than one, which counts is known when the conversation goes on

    def reply(self, text: str) -> Reply:
        """What a whole answer says."""
        parser = self.new_parser()
        return Reply.of([*parser.feed(text), *parser.finish()])


def accept(services: Services, user: User, headers: Mapping[str, str], chat: ChatRequest) -> list[Accepted]:
    """Check, render, place and record a request: one turn per answer. Nothing is recorded of a refused one.

    `chat` is what every API family's request becomes. Blocking: run it in a thread.

    Raises:
        ApiError, NotAllowed, NameRefused, TemplateError: the request asks for what can't be.
        ContextOverflow: its prompt doesn't fit; nothing has been read by the model.
    """
    settings = services.settings.server
    target = services.versions.resolve(user, chat.model)
    messages = for_template(chat.messages)
    chat.check_token_ids(services.vocabulary.size)
    tools = chat.offered_tools()
    template_arguments = chat.template_arguments()
    prompt = tuple(services.renderer.prompt_ids(messages, tools=tools, **template_arguments))
    if len(prompt) >= services.engine.context or _leaves_no_room(services, headers, chat, messages, len(prompt)):
        raise ContextOverflow(len(prompt), services.engine.context)
    constraint = services.structure.constraint(chat, prompt)
    stops = () if chat.forced_tools() else chat.stops()  # one within a call's notation would break the call
    digest = request_hash(chat.model, messages, tools)
    placement = place(
        services.store,
        user.id,
        headers,
        messages,
        digest,
        prompt_cache_key=chat.prompt_cache_key,
        has_tools=bool(tools),
    )
    new = NewTurn(
        session_id=placement.session.id,
        user_id=user.id,
        adapter_id=target.adapter.id if target.adapter else None,
        version_id=target.version.id if target.version else None,
        base_fingerprint=services.versions.base_fingerprint,
        kind=placement.kind,
        kind_evidence=placement.kind_evidence,
        prompt_ids=prompt,
        messages=messages,
        request_hash=digest,
        parameters={
            "model": chat.model,
            "stop": list(stops),
            TEMPLATE_ARGUMENTS: template_arguments,
            "constrained": chat.constrained_by(),
        },
        tools=tools,
        previous_id=placement.previous.id if placement.previous else None,
    )
    generation = GenerationRequest(
        id="",
        prompt_ids=prompt,
        max_new_tokens=chat.token_limit(settings, services.engine.context),
        version=target.version,
        sampling=chat.sampling(settings),
        stop=stops,
        constraint=constraint,
        shown_tokens=services.replies.shown_tokens(tools),
        priority=priority_of(headers),
        owner=user.id,
    )
    new_parser = partial(services.replies.parser, tools, prompt, parallel=not chat.one_call_at_most())
    generations = record(services.store, new, generation, chat.n or 1)
    _tell_previous(services, placement, generations[0].id, digest)
    return [Accepted(each.id, placement, target, messages, each, new_parser, len(generations)) for each in generations]


def record(store: Store, new: NewTurn, generation: GenerationRequest, count: int) -> list[GenerationRequest]:
    """Begin a turn for each of `count` answers to one prompt. What the engine is to do for each has the turn's id."""
    generations = []
    for index in range(count):
        sampling = of_answer(generation.sampling, index)
        more = {"sampling": asdict(sampling), "max_tokens": generation.max_new_tokens, "n": count}
        turn_id = store.turns.begin(replace(new, parameters={**new.parameters, **more}))
        generations.append(replace(generation, id=turn_id, sampling=sampling))
    return generations


def priority_of(headers: Mapping[str, str]) -> Priority:
    return Priority.BACKGROUND if headers.get(PRIORITY_HEADER) == "background" else Priority.INTERACTIVE


def _leaves_no_room(
    services: Services, headers: Mapping[str, str], chat: ChatRequest, messages: list[Message], prompt_tokens: int
) -> bool:
    """Whether the client asks for one token because that is all that its prompt leaves of the window.

    OpenClaw does so with a prompt that is too large by its own estimate, and takes the one token for an answer. One
    token after a short prompt is a wish like any other.
    """
    if chat.max_completion_tokens != 1:
        return False
    share = OPENCLAW_FULL if is_openclaw(headers, messages) else FULL
    return prompt_tokens >= share * services.engine.context


def _tell_previous(services: Services, placement: Placement, turn_id: str, digest: str) -> None:
    """The turn before gets its next state; earlier answers to this same request are now retried ones."""
    if placement.kind != "main":
        return
    turns = services.store.turns
    if placement.previous and turns.give_next_state(placement.previous.id, turn_id, placement.next_state):
        services.ring_learner()
    turns.supersede(placement.session.id, digest, turn_id)


class Exchange:
    """Made on the event loop; `start` it once, or `cancel` it then. `tell` gets tokens, then one `Finished`."""

    def __init__(self, services: Services, accepted: Accepted, tell: Callable[[Event], None]) -> None:
        self.accepted = accepted
        self.tokens: list[Token] = []
        self.text = ""
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._tell = tell
        self._handle: Handle | None = None
        self._accepted_at = time.time()
        self._first_token_at: float | None = None

    def start(self) -> None:
        """Hand the request to the engine. If that refuses, the turn is stored as failed and the error goes on."""
        self._services.in_flight += 1
        self._services.in_flight_of[self.accepted.generation.owner] += 1
        try:
            self._handle = self._services.engine.submit(self.accepted.generation, self._on_engine_thread)
        except BaseException as error:
            self._services.keep(self._store(Finished("error", error=str(error))))
            raise

    def cancel(self) -> None:
        """The client is gone: stop at the engine's next step. What there is of the answer is stored as aborted."""
        if self._handle is not None:
            self._handle.cancel()

    def _on_engine_thread(self, event: Event) -> None:
        try:
            self._loop.call_soon_threadsafe(self._take, event)
        except RuntimeError:  # the loop has ended: the turn is discarded as interrupted at the next start
            log.warning("turn %s outlived the server", self.accepted.turn_id)

    def _take(self, event: Event) -> None:
        self.text += event.text
        if isinstance(event, Finished):
            self._services.keep(self._store(event))
            return
        if self._first_token_at is None:
            self._first_token_at = time.time()
        self.tokens.append(event)
        self._tell(event)

    async def _store(self, finished: Finished) -> None:
        try:
            await asyncio.to_thread(self._write, finished)
        except Exception:
            # The person gets the answer all the same; that it couldn't be kept is shouted.
            log.exception("turn %s could not be stored", self.accepted.turn_id)
        self._services.in_flight -= 1
        self._services.in_flight_of[self.accepted.generation.owner] -= 1
        first_token_s = self._first_token_at - self._accepted_at if self._first_token_at else None
        self._services.metrics.answered(finished.reason, first_token_s, time.time() - self._accepted_at)
        self._tell(finished)

    def _write(self, finished: Finished) -> None:
        turns = self._services.store.turns
        whole = finished.reason in ("stop", "length")
        reply = self.accepted.reply(self.text)
        response = Response(
            ids=tuple(token.id for token in self.tokens),
            logprobs=tuple(token.logprob for token in self.tokens),
            text=self.text,
            finish_reason=finished.reason,
            conversation_hash=hash_with_response(
                self.accepted.messages, reply.content if whole else "", reply.tool_calls() if whole else ()
            ),
            cached_tokens=finished.cached_tokens,
            first_token_at=self._first_token_at,
        )
        if whole:
            turns.finish(self.accepted.turn_id, response, alternative=self.accepted.answers > 1)
        else:
            turns.abort(self.accepted.turn_id, response, "aborted" if finished.reason == "cancelled" else "error")
        if self.accepted.placement.is_last:
            self._services.store.sessions.close(self.accepted.placement.session.id, "done")
