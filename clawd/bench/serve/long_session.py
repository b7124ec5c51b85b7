"""A long session: its cold start, its second turn, and its first turn after a swap against one without.

Each round is a new session of a user who has had no other under the version that answers. The turn without a swap comes
once before the turn after the swap and once after it; what it is compared with is the mean of both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from clawd.bench.serve.adapters import Swap
from clawd.bench.serve.client import Client, Messages
from clawd.bench.serve.figures import Row
from clawd.model.vocab import Vocabulary

ANSWER_TOKENS = 8
FURTHER = ("And the next one?", "And the one after it?", "Which is the cheapest?", "Which is the last?")


def long_text(vocabulary: Vocabulary, number: int, tokens: int) -> str:
    """Just over `tokens` tokens, unlike those with another `number` from the first line on."""
    lines: list[str] = []
    while len(vocabulary.tokenise(" ".join(lines))) < tokens:
        item = len(lines) + 1
        lines.append(f"Item {item} of shelf {number} costs {7 * item} coins and weighs {number + item} ounces.")
    return " ".join(lines)


class Session:
    """A conversation that goes on."""

    def __init__(self, client: Client, first: str) -> None:
        self._client = client
        self._messages: Messages = [{"role": "user", "content": first}]
        self.prompt_tokens = 0  # of the newest turn
        self.version = ""  # that answered it

    def first_token_s(self) -> float:
        """Ask; add the answer and a further question for the next time."""
        answer = self._client.ask(self._messages, ANSWER_TOKENS)
        self.prompt_tokens, self.version = answer.prompt_tokens, answer.version
        said = FURTHER[len(self._messages) // 2 % len(FURTHER)]
        self._messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": said}]
        return answer.first_token_s


def measure(client: Client, first: str, swap: Callable[[], Swap]) -> Row:
    """One round. `swap` publishes a version for the client's adapter and returns when it answers."""
    session = Session(client, first)
    cold_s = session.first_token_s()
    tokens = session.prompt_tokens
    second_s = session.first_token_s()
    before_s = session.first_token_s()
    swapped = swap()
    after_swap_s = session.first_token_s()
    answered_by = session.version
    without_s = statistics.fmean([before_s, session.first_token_s()])
    return {
        "what": "long session",
        "first_turn_tokens": tokens,
        "cold_start_s": round(cold_s, 3),
        "second_turn_s": round(second_s, 3),
        "second_over_cold": round(second_s / cold_s, 4),
        "without_swap_s": round(without_s, 3),
        "after_swap_s": round(after_swap_s, 3),
        "after_swap_over_without": round(after_swap_s / without_s, 3),
        "swap_s": round(swapped.active_at - swapped.published_at, 2),
        "answered_by": answered_by,
    }
