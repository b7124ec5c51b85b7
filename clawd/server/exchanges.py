"""The answers to one HTTP request: usually one exchange, several where a client wants alternatives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from clawd.server.auth import identify
from clawd.server.engine.types import Event, Finished
from clawd.server.errors import ApiError
from clawd.server.exchange import Accepted, Exchange, accept
from clawd.server.openai_chat.schema import ChatRequest
from clawd.server.services import Services
from clawd.server.share import check_room, check_share
from clawd.store.records import User


class Exchanges:
    """Made on the event loop; `start` them once, read `events` to the end, or `cancel` them all."""

    def __init__(self, services: Services, accepted: Sequence[Accepted]) -> None:
        self._told: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self.all = [Exchange(services, each, partial(self._tell, index)) for index, each in enumerate(accepted)]

    @property
    def first(self) -> Accepted:
        """What they have in common can be read off any of them."""
        return self.all[0].accepted

    @property
    def turn_ids(self) -> list[str]:
        return [exchange.accepted.turn_id for exchange in self.all]

    def start(self) -> None:
        """Hand all to the engine. If it refuses one, all end, each stored as what it came to; the error goes on."""
        refusals = []
        for exchange in self.all:
            try:
                exchange.start()
            except Exception as error:
                refusals.append(error)
        if refusals:
            self.cancel()
            raise refusals[0]

    def cancel(self) -> None:
        """The client is gone."""
        for exchange in self.all:
            exchange.cancel()

    async def events(self, patience_s: float) -> AsyncIterator[tuple[int, Event] | None]:
        """Each exchange's tokens, then its `Finished`, with its place. None when nothing came for `patience_s`."""
        running = len(self.all)
        while running:
            try:
                async with asyncio.timeout(patience_s):  # `wait_for` makes a task for each token
                    index, event = await self._told.get()
            except TimeoutError:
                yield None
                continue
            running -= isinstance(event, Finished)
            yield index, event

    def _tell(self, index: int, event: Event) -> None:
        self._told.put_nowait((index, event))


@asynccontextmanager
async def admitted(services: Services, request: Request) -> AsyncIterator[User]:
    """Who asks, if there is an engine to answer and room in the queue. Accept and start the request inside.

    Until then it has a place of its own in the queue: of a hundred that come at once, no more are let in than of a
    hundred one after the other.

    Raises:
        ApiError: 401, 429 or 503.
    """
    user = await run_in_threadpool(identify, services.store, request, services.owner_key)
    if not services.engine.alive:
        raise ApiError(503, "The engine has failed and is being restarted.", code="engine_stopped")
    check_room(services)
    check_share(services, user)
    with services.place_of(user.id):  # nothing is awaited between the look and this
        yield user


async def begin(services: Services, request: Request, chat: ChatRequest) -> Exchanges:
    """Admit, accept and start what any API family has put as a `ChatRequest`.

    Raises:
        ApiError, ClawdError: nothing was begun.
    """
    services.count_unknown(chat.unknown_fields())
    async with admitted(services, request) as user:
        accepted = await run_in_threadpool(accept, services, user, request.headers, chat)
        exchanges = Exchanges(services, accepted)
        exchanges.start()
    return exchanges
