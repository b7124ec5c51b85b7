"""The shape that a reply must have, without saying how it is enforced: what families write, and compilers read.

A form is data: two that are equal stand for the same texts, so that a compiled one can be kept by its content.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FREE_OBJECT = '{"type": "object"}'


@dataclass(frozen=True)
class Text:
    """Exactly this text."""

    text: str


@dataclass(frozen=True)
class Mark:
    """A tag of the family: one token where the vocabulary has it as one, its text where not."""

    text: str


@dataclass(frozen=True)
class Json:
    """A JSON value of a schema."""

    schema: str  # JSON text, the order of its keys kept: it is the order in which properties are written
    lenient: bool = False  # what can't be enforced of the schema is left out

    @classmethod
    def of(cls, schema: Any, *, lenient: bool = False) -> Json:
        return cls(json.dumps(schema, ensure_ascii=False), lenient)


@dataclass(frozen=True)
class UpTo:
    """Any text, ended by the first `mark`."""

    mark: str


@dataclass(frozen=True)
class InOrder:
    parts: tuple[Form, ...]


@dataclass(frozen=True)
class OneOf:
    parts: tuple[Form, ...]


@dataclass(frozen=True)
class Maybe:
    part: Form


@dataclass(frozen=True)
class Repeated:
    """`part` once to `at_most` times, `between` between them."""

    part: Form
    between: Form
    at_most: int


Form = Text | Mark | Json | UpTo | InOrder | OneOf | Maybe | Repeated


@dataclass(frozen=True)
class ForcedTool:
    """A tool that may have to be called. `arguments` describes an object."""

    name: str
    arguments: Json
    parameters: Any = None  # the tool's own schema, as it came


def in_order(*parts: Form) -> Form:
    return InOrder(parts)


def one_of(parts: Sequence[Form]) -> Form:
    return parts[0] if len(parts) == 1 else OneOf(tuple(parts))
