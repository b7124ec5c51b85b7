"""Which prefixes to read under a new adapter version before it takes over, and the account of reading them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from clawd.errors import AdapterRejected
from clawd.server.engine.remembered import Tokens, common_prefix
from clawd.server.engine.types import Event, Finished


def choose_prefixes(held: Sequence[Tokens], min_tokens: int, max_tokens: int) -> list[Tokens]:
    """The sequences of `held` (most wanted first) to read, each common part counted once, at most `max_tokens` in all.

    Sequences of fewer than `min_tokens` are left out, and so are those that another chosen one begins with. The last
    one is cut to fit if at least `min_tokens` of it are left.
    """
    chosen: list[Tokens] = []
    room = max_tokens
    for tokens in held:
        if len(tokens) < min_tokens:
            continue
        known = max((common_prefix(tokens, other) for other in chosen), default=0)
        cut = tokens[: known + room]
        if known == len(tokens) or len(cut) < min_tokens or len(cut) == known:
            continue
        room -= len(cut) - known
        # What it extends is read along with it.
        chosen = [other for other in chosen if common_prefix(other, cut) < len(other)]
        chosen.append(cut)
    return chosen


class Warming:
    """Counts what several background requests read and answers one future."""

    def __init__(self, future: Future[int], count: int) -> None:
        self._future = future
        self._left = count
        self._tokens = 0
        if count == 0:
            self._answer()

    def sink(self, event: Event) -> None:
        """For each of the requests."""
        if not isinstance(event, Finished):
            return
        self._left -= 1
        self._tokens += event.prompt_tokens - event.cached_tokens
        if event.reason == "error":
            with suppress(InvalidStateError):
                self._future.set_exception(AdapterRejected(event.error or "The adapter can't be warmed."))
        elif self._left == 0:
            self._answer()

    def _answer(self) -> None:
        with suppress(InvalidStateError):  # cancelled meanwhile
            self._future.set_result(self._tokens)
