"""From a hint to the teacher's prompt: the served prompt with the hint appended to the last user message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clawd.learner.job import HintPrompt
from clawd.store.codec import common_prefix
from clawd.store.records import Hint, Message, Turn

HINT = "\n\n(A note for your answer, which I would otherwise have to give you afterwards: {hint})"
"""How a hint is put to the teacher.

In the user's own voice, because it stands in the user's message, and as a note on the answer to come: told "you should
have …", a model apologises for an answer that it has not given yet.
"""

Render = Callable[[list[Message], list[Any] | None, dict[str, Any]], list[int]]
"""Messages, tools and the request's parameters to token ids, exactly as the server does it."""


def with_hint(messages: Sequence[Message], hint: str) -> list[Message]:
    """The messages with `hint` appended to the last one of the user; the given ones stay as they are."""
    note = HINT.format(hint=hint)
    changed = list(messages)
    for place in range(len(changed) - 1, -1, -1):
        if changed[place].get("role") == "user":
            changed[place] = {**changed[place], "content": _appended(changed[place].get("content"), note)}
            return changed
    return [*changed, {"role": "user", "content": note.strip()}]


def _appended(content: Any, note: str) -> Any:
    if isinstance(content, list):
        return [*content, {"type": "text", "text": note}]
    return f"{content}{note}" if content else note.strip()


def hint_prompts(turn: Turn, hints: Sequence[Hint], render: Render) -> list[HintPrompt]:
    """One prompt per hint. Hints whose prompt can't be made from the tokens that were served are left out."""
    if not hints:
        return []
    plain = render(turn.messages, turn.tools, turn.parameters)
    prompts = []
    for hint in hints:
        hinted = render(with_hint(turn.messages, hint.text), turn.tools, turn.parameters)
        ids = transplant(turn.prompt_ids, plain, hinted)
        if ids is not None:
            prompts.append(HintPrompt(hint_id=hint.id, text=hint.text, prompt_ids=ids))
    return prompts


def transplant(served: Sequence[int], plain: Sequence[int], hinted: Sequence[int]) -> list[int] | None:
    """`hinted` with its beginning, up to where the hint comes in, as it was served; none: they don't fit together.

    A prompt is rendered again as it was served, unless an earlier response in it was sampled as other tokens than its
    text encodes to. Then served and plain differ there and agree from there on.
    """
    if list(served) == list(plain):
        return list(hinted)
    shared = common_prefix(plain[::-1], served[::-1])  # tokens at the end
    before = len(plain) - shared
    if common_prefix(plain, hinted) < before:
        return None  # the hint comes in where they differ
    return [*served[: len(served) - shared], *hinted[before:]]
