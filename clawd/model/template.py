"""Chat templates: Jinja from a model file, rendered without trusting it.

The template runs in Jinja's immutable sandbox: it reaches neither Python's internals nor the network nor files, and
can't change what it is given. A budget bounds it: every step of a loop, every call, filter, test and operation checks
the time, and the lengths of all texts and lists that these make are added up. So a template that loops for ever or
blows up a text ends in `TemplateError`, after about `time_limit_s` at worst.

What templates may use beyond Jinja itself is what model authors expect of Hugging Face's `apply_chat_template`: loop
controls, `raise_exception`, `strftime_now`, a `tojson` that leaves `<` and `&` alone, blocks without their newlines.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.filters import do_format
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from clawd.errors import TemplateError

TIME_LIMIT_S = 5.0
SIZE_LIMIT = 32 * 1024 * 1024  # characters and list entries made during one rendering, intermediate ones included
GROWTH_LIMIT = 4 * SIZE_LIMIT  # product of the two largest things that one call gets: a text and a width, two texts
BITS_LIMIT = 65_536  # of a whole number
POWER_LIMIT = 1000
WIDTH = re.compile(r"\d{5,}|\*")  # in a format: `{:99999}`, `%99999d`, `%*d`

STEPS = "_budgeted_steps"
JOIN = "_budgeted_join"


class ChatTemplate:
    """`source` compiled once; `bos` and `eos` are the texts that templates write as `bos_token` and `eos_token`.

    Raises:
        TemplateError: it doesn't compile, or uses a tag, filter or test that there isn't.
    """

    def __init__(self, source: str, bos: str = "", eos: str = "", *, time_limit_s: float = TIME_LIMIT_S) -> None:
        self.source = source
        self._budget = _Budget(time_limit_s)
        self._texts = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = _Environment(self._budget).from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise TemplateError(
                f"The chat template can't be used: {_explain(error)}. Serve a model file with another template."
            ) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt's text. Safe to call from several threads.

        Raises:
            TemplateError: the template refuses these messages, fails on them, or exceeds its bounds.
        """
        self._budget.begin()
        given = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        parts = []
        try:
            for part in self._template.generate(**self._texts, **given, **variables):
                self._budget.spend(part)
                parts.append(part)
        except Exception as error:  # a template can raise whatever its expressions can
            raise TemplateError(f"The chat template fails on these messages: {_explain(error)}.") from None
        return "".join(parts)


class _Exhausted(Exception):
    """The budget is spent. No jinja2.TemplateError, so that no template construct swallows it."""


class _Budget:
    """What one rendering may still use; each thread has its own."""

    def __init__(self, time_limit_s: float) -> None:
        self._time_limit_s = time_limit_s
        self._local = threading.local()

    def begin(self) -> None:
        self._local.deadline = time.monotonic() + self._time_limit_s
        self._local.left = SIZE_LIMIT

    def check(self) -> None:
        # Compiling a template evaluates its constant expressions: there is no rendering then.
        if time.monotonic() > getattr(self._local, "deadline", float("inf")):
            raise _Exhausted(f"it needs more than {self._time_limit_s:g} s")

    def spend(self, value: Any) -> Any:
        """Check the time, count what was made, and hand it on."""
        self.check()
        if isinstance(value, (str, bytes, list, tuple, dict)):
            self._charge(len(value))
        elif isinstance(value, int) and value.bit_length() > BITS_LIMIT:
            raise _Exhausted(f"it computes a number of more than {BITS_LIMIT} bits")
        return value

    def measure(self, value: Any) -> Any:
        """Count the entries of nested lists, which take little room until they are written out; hand it on."""
        if isinstance(value, (list, tuple, dict)):
            self.check()
            self._charge(len(value))
            for item in value.values() if isinstance(value, dict) else value:
                self.measure(item)
        return value

    def _charge(self, amount: int) -> None:
        self._local.left = getattr(self._local, "left", SIZE_LIMIT) - amount
        if self._local.left < 0:
            raise _Exhausted(f"it makes more than {SIZE_LIMIT} characters")

    def steps(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items of a loop, one check each."""
        for item in items:
            self.check()
            yield item


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox with a budget on everything that takes time or room."""

    intercepted_binops = frozenset(["+", "*", "%", "**"])

    def __init__(self, budget: _Budget) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols"],
            finalize=budget.measure,
        )
        self._budget = budget
        del self.globals["lipsum"]
        self.filters["tojson"] = _to_json
        self.filters = {name: self._bounded(function) for name, function in self.filters.items()}
        self.filters[STEPS] = self._steps
        self.filters[JOIN] = self._join
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Let every loop and every `~` of the template go through the budget."""
        tree = _Rewriter().visit(super()._parse(source, name, filename))
        assert isinstance(tree, nodes.Template)
        return tree

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        self._check_growth(getattr(__obj, "__self__", None), *args, *kwargs.values())
        return self._budget.spend(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            self._check_repetition(left, right)
            self._check_repetition(right, left)
        elif operator == "**" and isinstance(right, int) and abs(right) > POWER_LIMIT:
            raise _Exhausted(f"it raises a number to a power above {POWER_LIMIT}")
        elif operator == "%" and isinstance(left, str):
            self._check_format(left)
        return self._budget.spend(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` and its kin, when a template gets hold of them."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            self._check_format(value.__self__)
        return wrapped

    def _check_repetition(self, left: Any, right: Any) -> None:
        if isinstance(right, int) and isinstance(left, (str, bytes, list, tuple)) and len(left) * right > SIZE_LIMIT:
            raise _Exhausted(f"it makes more than {SIZE_LIMIT} characters")

    def _check_format(self, form: str) -> None:
        if WIDTH.search(form):
            raise _Exhausted("it formats with a width above 9999")

    def _bounded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def bounded(*args: Any, **kwargs: Any) -> Any:
            self._check_growth(*args, *kwargs.values())
            if function is do_format:
                self._check_format(str(args[0]))
            return self._budget.spend(function(*args, **kwargs))

        # Jinja reads from the function itself whether it wants the context or the environment first.
        bounded.__dict__.update(getattr(function, "__dict__", {}))
        return bounded

    def _check_growth(self, *values: Any) -> None:
        """Before a call that could make, in one go, something as long as the product of what it gets."""
        sizes = []
        for value in values:
            self._budget.measure(value)
            if isinstance(value, int):
                sizes.append(abs(value))
            elif isinstance(value, (str, bytes, list, tuple, dict)):
                sizes.append(len(value))
        sizes.sort()
        if len(sizes) > 1 and sizes[-1] * max(1, sizes[-2]) > GROWTH_LIMIT:
            raise _Exhausted("it could make far too long a text in one call")

    def _steps(self, items: Any) -> Any:
        # Jinja's own Undefined knows best how to fail; a sized thing keeps its length for `loop.length`.
        if isinstance(items, Undefined):
            return items
        return _Sized(self._budget, items) if hasattr(items, "__len__") else self._budget.steps(items)

    def _join(self, parts: list[Any]) -> str:
        return "".join(str(self._budget.spend(self._budget.measure(part))) for part in parts)


class _Sized:
    """A loop's items with their count."""

    def __init__(self, budget: _Budget, items: Any) -> None:
        self._budget = budget
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return self._budget.steps(self._items)


class _Rewriter(NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802  the name is Jinja's
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, STEPS, [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802  the name is Jinja's
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, JOIN, [], [], None, None, lineno=node.lineno)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own escapes `<`, `>` and `&` for HTML, which a model would read as they stand."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _explain(error: BaseException) -> str:
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"line {error.lineno}: {(error.message or '').rstrip('.')}"
    if isinstance(error, RecursionError):
        return "it nests too deeply"
    return str(error).rstrip(".") or type(error).__name__
