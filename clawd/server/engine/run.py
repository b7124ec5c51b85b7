"""One request in flight on the engine's thread: its sampling, its shown text, its events."""

from __future__ import annotations

import logging

from clawd.errors import ClawdError
from clawd.model.vocab import Vocabulary
from clawd.server.engine.sampler import Row, Sampler
from clawd.server.engine.text import ShownText
from clawd.server.engine.types import Event, Finished, FinishReason, GenerationRequest, Sink, Token

logger = logging.getLogger(__name__)


class Run:
    """`key` is the engine's own name for the request: clients may use an id twice."""

    def __init__(self, key: str, request: GenerationRequest, sink: Sink) -> None:
        self.key = key
        self.request = request
        self.response_tokens = 0
        self._sink = sink
        self._sampler = Sampler(request.sampling, request.constraint.begin() if request.constraint else None)
        self._shown = ShownText(request.stop)

    @property
    def version_id(self) -> str | None:
        return self.request.version.id if self.request.version else None

    @property
    def read_only(self) -> bool:
        return self.request.max_new_tokens == 0

    def sample(self, logits: Row, vocabulary: Vocabulary, cached_tokens: int) -> tuple[int, bool]:
        """Choose a token from `logits` (V,) and tell it; if it is the last one, tell the end as well.

        Returns (token id, whether the request has ended).
        """
        try:
            choice = self._sampler.choose(logits)
        except Exception as error:  # whatever one request's parameters bring about, the others go on
            logger.exception("sampling for request %s failed", self.request.id)
            self.finish("error", cached_tokens, f"The answer can't go on: {error}.")
            return 0, True
        self.response_tokens += 1
        at_end = vocabulary.is_end(choice.id)
        special = choice.id in self.request.shown_tokens
        text = "" if at_end else self._shown.feed(vocabulary.token_bytes(choice.id, special=special))
        if not self._tell(Token(choice.id, choice.logprob, text, choice.alternatives)):
            return choice.id, True
        reason: FinishReason | None = None
        if at_end or self._shown.stopped:
            reason = "stop"
        elif self.response_tokens >= self.request.max_new_tokens:
            reason = "length"
        if reason:
            self.finish(reason, cached_tokens)
        return choice.id, reason is not None

    def finish(
        self, reason: FinishReason, cached_tokens: int, error: str | None = None, cause: ClawdError | None = None
    ) -> None:
        """Tell the last event."""
        self._tell(
            Finished(
                reason=reason,
                text=self._shown.finish(),
                error=error,
                cause=cause,
                prompt_tokens=len(self.request.prompt_ids),
                cached_tokens=cached_tokens,
                response_tokens=self.response_tokens,
                stop=self._shown.matched,
            )
        )

    def refuse(self, error: ClawdError) -> None:
        """It never began."""
        self._tell(Finished("error", error=str(error), cause=error, prompt_tokens=len(self.request.prompt_ids)))

    def _tell(self, event: Event) -> bool:
        """Whether the sink took it. A sink that raises costs its own request, not the engine."""
        try:
            self._sink(event)
        except Exception:
            logger.exception("the sink of request %s failed", self.request.id)
            return False
        return True
