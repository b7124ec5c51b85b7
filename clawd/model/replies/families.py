"""Which parser reads a model's replies: one line a family, told from the chat template or `model.reply_format`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawd.model.replies import gemma, harmony, hermes, llama3, mistral, qwen_coder
from clawd.model.replies.deltas import CallArguments, CallBegins, Delta
from clawd.model.replies.forms import ForcedTool, Form, Json, Mark, Maybe, OneOf, Text, UpTo, in_order, one_of
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
Forced = Sequence[ForcedTool]

THINK: Tags = ("<think>", "</think>")
GEMMA_THOUGHT: Tags = ("<|channel>thought", "<channel|>")
MISTRAL_THINK: Tags = ("[THINK]", "[/THINK]")
LONGEST_TAG = 32  # characters
MOST_CALLS = 16
"""Forced calls in one reply: a small model that may go on calls the same again and again."""


@dataclass(frozen=True)
class Family:
    """`signs`: texts of which a chat template of the family holds one. `marks`: tags of calls, often control tokens."""

    signs: tuple[str, ...]
    calls: Callable[[Tools], Parser]
    forced: Callable[[Forced, int, str], Form]  # what calls look like: the tools, the most calls, the chat template
    marks: tuple[str, ...]
    thinking: tuple[Tags, ...] = (THINK,)
    without_calls: Callable[[], Parser] = PlainText
    always: tuple[str, ...] = ()  # marks that have a meaning even without tools
    answer: Callable[[Form], Form] = lambda form: form  # what a reply whose content has a form looks like


def _llama3(tools: Tools) -> Parser:
    return Llama3({tool["function"]["name"] for tool in tools})


HARMONY_MARKS = (harmony.START, harmony.CHANNEL, harmony.MESSAGE, "<|constrain|>", *harmony.ENDS)
LLAMA3_SIGNS = (llama3.TAG, '"parameters": dictionary of argument name')

FAMILIES: dict[str, Family] = {  # the first one with a sign in the template is it
    "harmony": Family(
        ("<|channel|>",),
        lambda _: Harmony(with_calls=True),
        lambda tools, _most, _template: harmony.forced(tools),
        (),
        thinking=(),
        without_calls=lambda: Harmony(with_calls=False),
        always=HARMONY_MARKS,
        answer=harmony.answer,
    ),
    "gemma": Family(
        (gemma.OPEN,),
        lambda _: Gemma(),
        lambda tools, most, _template: gemma.forced(tools, most),
        (gemma.OPEN, gemma.CLOSE, gemma.QUOTE),
        (GEMMA_THOUGHT,),
    ),
    "qwen_coder": Family(
        ("<parameter=",),
        QwenCoder,
        lambda tools, most, _template: qwen_coder.forced(tools, most),
        (hermes.OPEN, hermes.CLOSE),
    ),
    "hermes": Family(
        (hermes.OPEN,),
        lambda _: Hermes(),
        lambda tools, most, _template: hermes.forced(tools, most),
        (hermes.OPEN, hermes.CLOSE),
    ),
    "mistral": Family(
        (mistral.MARK,),
        lambda _: Mistral(),
        mistral.forced,
        (mistral.MARK, mistral.ARGS, mistral.CALL_ID),
        (THINK, MISTRAL_THINK),
    ),
    "llama3": Family(LLAMA3_SIGNS, _llama3, lambda tools, most, _template: llama3.forced(tools, most), (llama3.TAG,)),
}
DEFAULT = "hermes"
"""Also the form in which prompts offer tools where the template can't."""


OWN_TAGS = frozenset(
    text
    for family in FAMILIES.values()
    for tags in (family.marks, *family.thinking)
    for tag in tags
    for text in (tag, tag[: tag.find(">") + 1])  # of Gemma's `<|channel>thought` the token is the first part
    if text
)
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
        thinking = [_head(tag) for pair in self._family.thinking for tag in pair]
        self._shown = self._control_tokens([*thinking, *self._family.always])
        self._shown_with_calls = self._shown | self._control_tokens(self._family.marks)
        singles = self._single_tokens([*thinking, *self._family.always, *self._family.marks])
        self.tags = {mark: token for mark, token in singles.items() if not vocabulary.is_end(token)}

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

    def forced_calls(self, tools: Forced, prompt_ids: Sequence[int], *, parallel: bool) -> Form:
        """A reply that calls one of `tools`; several if `parallel`. Reasoning may come first where the model reasons.

        Raises:
            ValueError: a tool's name that the family can't write.
        """
        return self._after_reasoning(self._calls(tools, MOST_CALLS if parallel else 1), prompt_ids)

    def formed_answer(self, content: Json, tools: Forced, prompt_ids: Sequence[int], *, parallel: bool) -> Form:
        """A reply whose content is `content`, or which calls one of `tools`, if there are any."""
        form = self._family.answer(content)
        if tools:
            form = OneOf((form, self._calls(tools, MOST_CALLS if parallel else 1)))
        return self._after_reasoning(form, prompt_ids)

    def _calls(self, tools: Forced, at_most: int) -> Form:
        return self._family.forced(tools, at_most, self._vocabulary.info.chat_template or "")

    def _after_reasoning(self, form: Form, prompt_ids: Sequence[int]) -> Form:
        """Reasoning must be closed where the prompt opens it, and may come where its tag is a token of the model."""
        opened = self._opened(prompt_ids)
        if opened is not None:
            return in_order(UpTo(opened[1]), BLANK_LINES, form)
        end = self._prompt_end(prompt_ids)
        known = [pair for pair in self._family.thinking if _head(pair[0]) in self.tags]
        if not known or any(end.endswith(closing) for _, closing in self._family.thinking):
            return form
        blocks = [in_order(*_written(opening), UpTo(closing), BLANK_LINES) for opening, closing in known]
        return in_order(Maybe(one_of(blocks)), form)

    def _prompt_end(self, prompt_ids: Sequence[int]) -> str:
        return self._vocabulary.text(prompt_ids[-LONGEST_TAG:], special=True).rstrip()

    def _opened(self, prompt_ids: Sequence[int]) -> Tags | None:
        """The reasoning tags of which the prompt ends with the opening one."""
        end = self._prompt_end(prompt_ids)
        return next((pair for pair in self._family.thinking if end.endswith(pair[0])), None)

    def _control_tokens(self, marks: Sequence[str]) -> frozenset[int]:
        singles = self._single_tokens(marks).values()
        return frozenset(token for token in singles if not self._vocabulary.token_bytes(token))

    def _single_tokens(self, marks: Sequence[str]) -> dict[str, int]:
        """The marks that are one token of the vocabulary."""
        ids = {mark: self._vocabulary.tokenise(mark, parse_special=True) for mark in marks}
        return {mark: found[0] for mark, found in ids.items() if len(found) == 1}


BLANK_LINES = in_order(Maybe(Text("\n")), Maybe(Text("\n")))
"""Between reasoning and what follows."""


def _head(tag: str) -> str:
    """The part of a tag that can be a token: Gemma's `<|channel>thought` is one and a word."""
    head, closing, word = tag.partition(">")
    return head + closing if word else tag


def _written(tag: str) -> list[Form]:
    word = tag.removeprefix(_head(tag))
    return [Mark(_head(tag)), *([Text(word)] if word else [])]


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
