"""What an answer may be written with: a form compiled against the model's vocabulary, and followed token by token.

llguidance does the work. Guarantees
* Compiling is bounded: in the size of the grammar here, in steps by llguidance's own limits. So is each mask.
* What is compiled is kept by its content; every answer follows it from its beginning, on its own.
* Control tokens can be written only where a form names them, the end token only where the form is fulfilled.

Compiling belongs on no thread that others wait for: call it neither on the event loop nor on the engine's thread.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from clawd.errors import SchemaRefused
from clawd.model.replies.forms import Form
from clawd.model.vocab import Vocabulary
from clawd.server.engine.constraint_grammar import grammar_of

GRAMMAR_BYTES = 256 * 1024
KEPT = 64  # compiled forms
LONGEST_REASON = 300  # characters
PLACE = re.compile(r"\A(at \d+\(\d+\): )?(failed to compile JSON schema: )?")
QUOTED = re.compile(r"\s*(\d+ \||\^+\s*$)")
TRIED_TOKENS = 4
LIMITS = LLParserLimits(verbose_errors=False)  # errors reach the log, schemas are a person's


@dataclass(frozen=True)
class Grammar:
    """A compiled form. `begin` is cheap, and safe on any thread."""

    _compiled: LLMatcher
    _size: int

    def begin(self) -> GrammarMatcher:
        """Follow it for one answer."""
        return GrammarMatcher(self._compiled.deep_copy(), self._size)


class GrammarMatcher:
    """One answer's place in a grammar. `size` is V."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        self._matcher = matcher
        self._size = size

    def allowed(self) -> NDArray[np.bool_]:
        """(V,): the tokens that may come next, end tokens among them.

        Raises:
            ValueError: none may, or finding out takes more steps than are allowed.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(bits, count=self._size, bitorder="little").view(np.bool_)
        if self._matcher.is_error():
            raise ValueError(f"the grammar can't be followed: {self._matcher.get_error().splitlines()[0]}")
        if not mask.any():
            raise ValueError("the grammar leaves no token")
        return mask

    def advance(self, token: int) -> None:
        """`token` has been written; it was allowed."""
        self._matcher.consume_token(token)


class Compiler:
    """Compiles for one vocabulary. `tags`: the family's marks that are one token of it, and which."""

    def __init__(self, vocabulary: Vocabulary, tags: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._tags = tags
        self._tokenizer: LLTokenizer | None = None  # none: not asked for yet; it takes a second for a large vocabulary
        self._kept: OrderedDict[Form, Grammar | SchemaRefused] = OrderedDict()
        self._lock = threading.Lock()  # on what is kept
        self._making = threading.Lock()  # of the tokenizer

    def compile(self, form: Form) -> Grammar:
        """The compiled form, from what is kept if it is there.

        Raises:
            SchemaRefused: it can't be compiled; the text says what of it.
        """
        with self._lock:
            found = self._kept.get(form)
            if found is not None:
                self._kept.move_to_end(form)
        if found is None:
            try:
                found = self.build(form)
            except SchemaRefused as error:
                found = error
            self._keep(form, found)
        if isinstance(found, SchemaRefused):
            raise SchemaRefused(str(found))
        return found

    def build(self, form: Form) -> Grammar:
        """Compile anew.

        Raises:
            SchemaRefused: as `compile`.
        """
        try:
            grammar = grammar_of(form, self._tags)
        except RecursionError:
            raise SchemaRefused("it nests too deeply") from None
        if len(grammar.encode("utf-8", "replace")) > GRAMMAR_BYTES:
            raise SchemaRefused(f"it makes a grammar of more than {GRAMMAR_BYTES} bytes")
        matcher = LLMatcher(self._ready_tokenizer(), grammar, log_level=0, limits=LIMITS)
        if matcher.is_error():
            raise SchemaRefused(_reason(matcher.get_error()))
        compiled = Grammar(matcher, self._vocabulary.size)
        _try(compiled)
        return compiled

    def _keep(self, form: Form, found: Grammar | SchemaRefused) -> None:
        with self._lock:
            self._kept[form] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def _ready_tokenizer(self) -> LLTokenizer:
        with self._making:
            if self._tokenizer is None:
                self._tokenizer = _tokenizer(self._vocabulary, set(self._tags.values()))
            return self._tokenizer


def _try(compiled: Grammar) -> None:
    """A grammar without any text, or too complex to be followed, shows only when it is used.

    Raises:
        SchemaRefused: it is such a one.
    """
    matcher = compiled.begin()
    try:
        for _ in range(TRIED_TOKENS):
            matcher.advance(int(matcher.allowed().argmax()))
    except ValueError as error:
        raise SchemaRefused(str(error)) from None


class _Tokens:
    """The vocabulary as llguidance asks for it."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, tags: set[int], end_id: int) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id = end_id
        self.tokens = [vocabulary.token_bytes(token) for token in range(vocabulary.size)]
        hidden = [token for token, data in enumerate(self.tokens) if not data]
        self.special_token_ids = sorted({*hidden, *tags})
        for token in self.special_token_ids:
            self.tokens[token] = b"<%d>" % token  # a name of its own; forms name them by their ids

    def __call__(self, text: bytes | str) -> list[int]:
        return self._vocabulary.tokenise(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def _tokenizer(vocabulary: Vocabulary, tags: set[int]) -> LLTokenizer:
    ends = [token for token in range(vocabulary.size) if vocabulary.is_end(token)]
    if not ends:
        raise SchemaRefused("the model file names no token that ends an answer")
    return LLTokenizer(
        TokenizerWrapper(_Tokens(vocabulary, tags, ends[0])), eos_token=ends, slices=LLTokenizer.json_slices()
    )


def _reason(error: str) -> str:
    """What the compiler says, without the place in the grammar and the lines of it that it quotes."""
    text = PLACE.sub("", error.strip())
    said = " ".join(line.strip() for line in text.splitlines() if not QUOTED.match(line))
    return said[:LONGEST_REASON].rstrip(".") or "it is no grammar"
