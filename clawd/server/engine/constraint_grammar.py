"""From a reply's form to a grammar in llguidance's dialect of Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from clawd.errors import SchemaRefused
from clawd.model.replies.forms import (
    Form,
    InOrder,
    Json,
    Mark,
    Maybe,
    OneOf,
    Repeated,
    Text,
    UpTo,
)

WHITESPACE = r" |\n( {0,32}|\t{0,8})"
"""Within JSON: a space, or a line break with an indentation. Small models that may write more write nothing else."""

OPTIONS = "x-guidance"
LARGEST_STEP = 10_000


def grammar_of(form: Form, tags: Mapping[str, int]) -> str:
    """The grammar's text. `tags`: the marks that are one token, and which.

    Raises:
        SchemaRefused: a schema in it is none.
    """
    rules = _Rules(tags)
    start = rules.expression(form)
    return "\n".join([f"start: {start}", *rules.lines])


class _Rules:
    def __init__(self, tags: Mapping[str, int]) -> None:
        self.lines: list[str] = []
        self._tags = tags

    def expression(self, form: Form) -> str:
        written: str
        match form:
            case Text(text):
                written = _quoted(text)
            case Mark(text):
                written = self._mark(text)
            case Json():
                written = self._rule(f"%json {schema_text(form)}")
            case UpTo(mark):
                written = self._up_to(mark)
            case InOrder(parts):
                written = " ".join(f"({self.expression(part)})" for part in parts) or _quoted("")
            case OneOf(parts):
                written = " | ".join(f"({self.expression(part)})" for part in parts)
            case Maybe(part):
                written = f"({self.expression(part)})?"
            case Repeated():
                written = self._repeated(form)
        return written

    def _repeated(self, form: Repeated) -> str:
        one = self._rule(self.expression(form.part))  # named, so that it stands in the grammar once
        if form.at_most == 1:
            return one
        more = self._rule(f"({self.expression(form.between)}) {one}")
        return f"{one} {more}{{0,{form.at_most - 1}}}"

    def _mark(self, text: str) -> str:
        return f"<[{self._tags[text]}]>" if text in self._tags else _quoted(text)

    def _up_to(self, mark: str) -> str:
        if mark in self._tags:
            return self._rule(r"/(?s:.*)/") + f" <[{self._tags[mark]}]>"
        ending = re.escape(mark).replace("/", r"\/")
        return self._rule(f"/(?s:.*){ending}/", "[lazy]")

    def _rule(self, body: str, options: str = "") -> str:
        name = f"r{len(self.lines)}"
        self.lines.append("")  # keeps the place while the body is written
        self.lines[int(name[1:])] = f"{name}{options}: {body}"
        return name


def schema_text(form: Json) -> str:
    """The schema with our options for the compiler, and without any that its author wrote for one.

    Raises:
        SchemaRefused: it is neither an object nor true or false.
    """
    schema: Any = json.loads(form.schema)
    if not isinstance(schema, dict):
        raise SchemaRefused("a schema is a JSON object")
    schema = _without_large_steps(schema, form.lenient)
    options: dict[str, Any] = {"whitespace_pattern": WHITESPACE, "lenient": form.lenient}
    return json.dumps({**schema, OPTIONS: options}, ensure_ascii=False)


def _without_large_steps(schema: Any, lenient: bool) -> Any:
    """llguidance takes seconds and hundreds of megabytes to enforce that a number is a multiple of a large one."""
    if isinstance(schema, list):
        return [_without_large_steps(part, lenient) for part in schema]
    if not isinstance(schema, dict):
        return schema
    step = schema.get("multipleOf")
    if isinstance(step, int | float) and step > LARGEST_STEP:
        if not lenient:
            raise SchemaRefused(f"multipleOf {step} is above {LARGEST_STEP}")
        schema = {key: part for key, part in schema.items() if key != "multipleOf"}
    return {key: _without_large_steps(part, lenient) for key, part in schema.items()}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
