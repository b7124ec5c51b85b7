"""The bytes of a bare completion: chunks, whole ones, and log-probabilities in this API's own shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clawd.model.replies.deltas import Content, Delta
from clawd.model.vocab import TextDecoder, Vocabulary
from clawd.server.answers import Answered, Writer
from clawd.server.engine.types import Finished, Token
from clawd.server.sse import DONE
from clawd.server.wire import Head, usage

KIND = "text_completion"


class CompletionWriter(Writer):
    """`index`: prompt by prompt, `n` each. `echoed`: per answer the text to be put in front."""

    def __init__(
        self, head: Head, vocabulary: Vocabulary, n: int, echoed: Sequence[str], *, with_logprobs: bool
    ) -> None:
        self._head = head
        self._n = n
        self._echoed = echoed
        self._scores = [Scores(vocabulary, len(text)) for text in echoed] if with_logprobs else None

    def begin(self) -> Iterable[bytes]:
        """A chunk at once, echo or not: clients count the time to the first byte."""
        for index, text in enumerate(self._echoed):
            yield self._chunk(index, text)

    def token(self, index: int, token: Token, deltas: list[Delta]) -> Iterable[bytes]:
        scores = self._scores_of(index, [token])
        if deltas or scores:
            yield self._chunk(index, _text(deltas), scores)

    def end(self, index: int, finished: Finished, deltas: list[Delta]) -> Iterable[bytes]:
        yield self._chunk(index, _text(deltas), reason=finished.reason)

    def close(self, ends: Sequence[Finished]) -> Iterable[bytes]:
        if self._head.include_usage:
            yield self._head.chunk(KIND, [], usage=usage(ends, self._n))
        yield DONE

    def whole(self, answers: Sequence[Answered]) -> dict[str, Any]:
        choices = [
            _choice(
                index, self._echoed[index] + answer.text, answer.finished.reason, self._scores_of(index, answer.tokens)
            )
            for index, answer in enumerate(answers)
        ]
        return self._head.of(KIND, choices, usage=usage([answer.finished for answer in answers], self._n))

    def _scores_of(self, index: int, tokens: Sequence[Token]) -> dict[str, Any] | None:
        return self._scores[index].of(tokens) if self._scores else None

    def _chunk(
        self, index: int, text: str, scores: Mapping[str, Any] | None = None, reason: str | None = None
    ) -> bytes:
        return self._head.chunk(KIND, [_choice(index, text, reason, scores)])


def _text(deltas: Iterable[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, Content))


def _choice(index: int, text: str, reason: str | None, scores: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": scores, "finish_reason": reason}


class Scores:
    """The `logprobs` objects of one answer. Offsets count characters of its text; the end token is no part of it."""

    def __init__(self, vocabulary: Vocabulary, offset: int) -> None:
        self._vocabulary = vocabulary
        self._decoder = TextDecoder()
        self._offset = offset

    def of(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        """None: none of them has a text."""
        said = [token for token in tokens if not self._vocabulary.is_end(token.id)]
        if not said:
            return None
        offsets = []
        for token in said:
            offsets.append(self._offset)
            self._offset += len(self._decoder.feed(self._vocabulary.token_bytes(token.id)))
        return {
            "tokens": [self._name(token.id) for token in said],
            "token_logprobs": [token.logprob for token in said],
            "top_logprobs": [self._top(token) for token in said],
            "text_offset": offsets,
        }

    def _top(self, token: Token) -> dict[str, float]:
        """The alternatives, and the chosen one whether it is among them or not."""
        others = {self._name(other.id): other.logprob for other in token.alternatives}
        return {**others, self._name(token.id): token.logprob}

    def _name(self, token_id: int) -> str:
        """A token's text; of one that is no text by itself its bytes, so that no two have one name."""
        raw = self._vocabulary.token_bytes(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
