"""From a hint to the teacher's prompt: the served prompt with the hint at the end of the user's last own message.

With a preference card the teacher is told the card's lines too, and on turns without a hint the card alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clawd.learner.job import HintPrompt
from clawd.learner.judge.reply import text_of
from clawd.openclaw_text import is_note, is_retry, said
from clawd.store.cards import same_rule
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
    """The messages with `hint` at the end of the last one that the user wrote; the given ones stay as they are."""
    note = HINT.format(hint=hint)
    changed = list(messages)
    place = last_own_message(messages)
    if place is None:
        return [*changed, {"role": "user", "content": note.strip()}]
    changed[place] = {**changed[place], "content": _appended(changed[place].get("content"), note)}
    return changed


def last_own_message(messages: Sequence[Message]) -> int | None:
    """Where the user's message stands that the response answers; None: there is no user's message at all.

    Not every message of the role is one: clients put machine context last, notes that set the scene, and prompts of
    their own that ask for an answer again. Where there is nothing better, the last of these is taken.
    """
    texts = {
        place: said(text_of(message.get("content"))) for place, message in enumerate(messages) if _is_user(message)
    }
    wanted = (
        [place for place, text in texts.items() if text and not is_note(text) and not is_retry(text)],
        [place for place, text in texts.items() if text],
        list(texts),
    )
    return next((places[-1] for places in wanted if places), None)


def _is_user(message: Message) -> bool:
    return message.get("role") == "user"


def _appended(content: Any, note: str) -> Any:
    if isinstance(content, list):
        return [*content, {"type": "text", "text": note}]
    return f"{content}{note}" if content else note.strip()


CARD_ID = "card"
"""In place of a hint's id, on turns that have none of their own."""


def candidates(hints: Sequence[Hint], card: Sequence[str]) -> list[Hint]:
    """What the teacher is told, once for each candidate: the turn's own hint comes last, after the card's lines."""
    if not card:
        return list(hints)
    if not hints:
        return [Hint(CARD_ID, _listed(card))]
    return [
        Hint(hint.id, _listed([*(line for line in card if not same_rule(line, hint.text)), hint.text]))
        for hint in hints
    ]


def _listed(lines: Sequence[str]) -> str:
    return lines[0] if len(lines) == 1 else "".join(f"\n- {line}" for line in lines)


def hint_prompts(turn: Turn, hints: Sequence[Hint], render: Render, card: Sequence[str] = ()) -> list[HintPrompt]:
    """One prompt per candidate. Those whose prompt can't be made from the tokens that were served are left out."""
    told = candidates(hints, card)
    if not told:
        return []
    plain = render(turn.messages, turn.tools, turn.parameters)
    prompts = []
    for hint in told:
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
