"""Which parser reads a model's replies: one line a family, told from the chat template or `model.reply_format`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawd.model.replies import gemma, harmony, hermes, llama3, mistral
from clawd.model.replies.deltas import CallArguments, CallBegins, Delta
from clawd.model.replies.gemma import Gemma
from clawd.model.replies.harmony import Harmony
from clawd.model.replies.hermes import Hermes
from clawd.model.replies.llama3 import Llama3
from clawd.model.replies.mistral import Mistral
from clawd.model.replies.parser import Parser, PlainText
from clawd.model.replies.qwen_coder import QwenCoder
from clawd.model.replies.thinking import Staged, Tags, Thinking
from clawd.model.vocab import Vocabulary

Tools = Sequence[Mapping[str, Any]]

THINK: Tags = ("<think>", "</think>")
GEMMA_THOUGHT: Tags = ("<|channel>thought", "<channel|>")
MISTRAL_THINK: Tags = ("[THINK]", "[/THINK]")
LONGEST_TAG = 32  # characters


@dataclass(frozen=True)
class Family:
    """`signs`: texts of which a chat template of the family holds one. `marks`: tags of calls, often control tokens."""

    signs: tuple[str, ...]
    calls: Callable[[Tools], Parser]
    marks: tuple[str, ...]
    thinking: tuple[Tags, ...] = (THINK,)
    without_calls: Callable[[], Parser] = PlainText
    always: tuple[str, ...] = ()  # marks that have a meaning even without tools


def _llama3(tools: Tools) -> Parser:
    return Llama3({tool["function"]["name"] for tool in tools})


HARMONY_MARKS = (harmony.START, harmony.CHANNEL, harmony.MESSAGE, "<|constrain|>", *harmony.ENDS)
LLAMA3_SIGNS = (llama3.TAG, '"parameters": dictionary of argument name')

FAMILIES: dict[str, Family] = {  # the first one with a sign in the template is it
    "harmony": Family(
        ("<|channel|>",),
        lambda _: Harmony(with_calls=True),
        (),
        thinking=(),
        without_calls=lambda: Harmony(with_calls=False),
        always=HARMONY_MARKS,
    ),
    "gemma": Family((gemma.OPEN,), lambda _: Gemma(), (gemma.OPEN, gemma.CLOSE, gemma.QUOTE), (GEMMA_THOUGHT,)),
    "qwen_coder": Family(("<parameter=",), QwenCoder, (hermes.OPEN, hermes.CLOSE)),
    "hermes": Family((hermes.OPEN,), lambda _: Hermes(), (hermes.OPEN, hermes.CLOSE)),
    "mistral": Family(
        (mistral.MARK,), lambda _: Mistral(), (mistral.MARK, mistral.ARGS, mistral.CALL_ID), (THINK, MISTRAL_THINK)
    ),
    "llama3": Family(LLAMA3_SIGNS, _llama3, (llama3.TAG,)),
}
DEFAULT = "hermes"
"""Also the form in which prompts offer tools where the template can't."""


OWN_TAGS = frozenset(tag for family in FAMILIES.values() for tags in (family.marks, *family.thinking) for tag in tags)
"""What a model of any family writes in an answer, and a client's history has as the text that was shown of it."""


def family_of(template: str) -> str:
    """The name of the family that a chat template's source tells."""
    for name, family in FAMILIES.items():
        if any(sign in template for sign in family.signs):
            return name
    return DEFAULT


class ReplyFormat:
    """How the replies of one model are read."""

    def __init__(self, name: str, vocabulary: Vocabulary) -> None:
        self.name = name
        self._family = FAMILIES[name]
        self._vocabulary = vocabulary
        tags = [tag for pair in self._family.thinking for tag in pair]
        self._shown = self._control_tokens([*tags, *self._family.always])
        self._shown_with_calls = self._shown | self._control_tokens(self._family.marks)

    @classmethod
    def of(cls, vocabulary: Vocabulary, name: str | None) -> ReplyFormat:
        """`name`: as set; none: as the model file's chat template tells."""
        return cls(name or family_of(vocabulary.info.chat_template or ""), vocabulary)

    def shown_tokens(self, tools: Tools | None) -> frozenset[int]:
        """Control tokens whose text the parser must see, though such tokens are hidden otherwise."""
        return self._shown_with_calls if tools else self._shown

    def parser(self, tools: Tools | None, prompt_ids: Sequence[int], *, parallel: bool = True) -> Parser:
        """A parser for one reply to a prompt that offered `tools`. `parallel` False: only the first call is told."""
        rest = self._family.calls(tools) if tools else self._family.without_calls()
        parser = Staged(Thinking(self._family.thinking, self._opened(prompt_ids)), rest)
        return parser if parallel else FirstCall(parser)

    def _opened(self, prompt_ids: Sequence[int]) -> Tags | None:
        """The reasoning tags of which the prompt ends with the opening one."""
        end = self._vocabulary.text(prompt_ids[-LONGEST_TAG:], special=True).rstrip()
        return next((pair for pair in self._family.thinking if end.endswith(pair[0])), None)

    def _control_tokens(self, marks: Sequence[str]) -> frozenset[int]:
        found = set()
        for mark in marks:
            ids = self._vocabulary.tokenise(mark, parse_special=True)
            if len(ids) == 1 and not self._vocabulary.token_bytes(ids[0]):
                found.add(ids[0])
        return frozenset(found)


class FirstCall:
    """Leaves out the calls after the first, for a client that wants no more than one."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser

    def feed(self, text: str) -> list[Delta]:
        return _first_call(self._parser.feed(text))

    def finish(self) -> list[Delta]:
        return _first_call(self._parser.finish())


def _first_call(deltas: list[Delta]) -> list[Delta]:
    return [delta for delta in deltas if not (isinstance(delta, CallBegins | CallArguments) and delta.index > 0)]
