"""Grammars over a real vocabulary: what may be written, when the end may come, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from clawd.bench.grammar_cases import CASES, Case
from clawd.errors import SchemaRefused
from clawd.model.replies.forms import (
    FREE_OBJECT,
    Form,
    InOrder,
    Json,
    Mark,
    Maybe,
    Repeated,
    Text,
    UpTo,
    in_order,
    one_of,
)
from clawd.model.vocab import Vocabulary
from clawd.server.engine.constraint import KEPT, Compiler
from clawd.server.engine.types import Constraint, SamplingParams
from tests.server.engine.asking import ask, running
from tests.server.engine.writing import Writer
from tests.tiny_gguf import write_tiny_model

TAGS = ("<think>", "</think>", "<call>")


@pytest.fixture(scope="module")
def vocabulary(embedded_model: Path) -> Iterator[Vocabulary]:
    with Vocabulary.open(embedded_model) as opened:
        yield opened


@pytest.fixture(scope="module")
def compiler(vocabulary: Vocabulary) -> Compiler:
    return Compiler(vocabulary, {})


@pytest.fixture(scope="module")
def writer(vocabulary: Vocabulary) -> Writer:
    return Writer(vocabulary)


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Compiler]]:
    """A small vocabulary in which tags are control tokens."""
    path = write_tiny_model(tmp_path_factory.mktemp("tagged") / "tiny.gguf", control=[*TAGS, "<other>"])
    with Vocabulary.open(path) as opened:
        yield opened, Compiler(opened, {tag: opened.tokenise(tag, parse_special=True)[0] for tag in TAGS})


def writable(constraint: Constraint, vocabulary: Vocabulary, text: str) -> bool:
    """Whether `text` and then each end token can be written."""
    matcher = constraint.begin()
    for token in vocabulary.tokenise(text, parse_special=True):
        if not matcher.allowed()[token]:
            return False
        matcher.advance(token)
    return all(matcher.allowed()[token] for token in range(vocabulary.size) if vocabulary.is_end(token))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_schema_allows_what_it_should_and_nothing_else(
    compiler: Compiler, vocabulary: Vocabulary, case: Case
) -> None:
    constraint = compiler.compile(Json.of(case.schema))
    for text in case.valid:
        assert writable(constraint, vocabulary, text), text
    for text in case.invalid:
        assert not writable(constraint, vocabulary, text), text


@pytest.mark.parametrize("case", CASES[::2], ids=lambda case: case.name)
def test_random_answers_are_json(compiler: Compiler, writer: Writer, case: Case) -> None:
    if case.name == "maxLength 1,000,000,000":
        pytest.skip("a random string has no reason to end")
    json.loads(writer.write(compiler.compile(Json.of(case.schema)), seed=3))


def test_characters_of_several_tokens_can_be_written(compiler: Compiler, vocabulary: Vocabulary) -> None:
    assert len(vocabulary.tokenise("𓀀")) > 1
    assert writable(compiler.compile(Json('{"type": "string"}')), vocabulary, '"𓀀 é 名"')
    constraint = compiler.compile(Json('{"const": "𓀀"}'))
    assert writable(constraint, vocabulary, '"𓀀"') and not writable(constraint, vocabulary, '"é"')


@pytest.mark.parametrize("space", ["\n\n", "  ", "\t", " \n"])
def test_white_space_can_not_go_on_for_ever(compiler: Compiler, vocabulary: Vocabulary, space: str) -> None:
    constraint = compiler.compile(Json(FREE_OBJECT))
    assert writable(constraint, vocabulary, '{\n  "a": [\n    1,\n    2\n  ]\n}')
    assert not writable(constraint, vocabulary, f'{{{space}"a": 1}}')
    assert not writable(constraint, vocabulary, f'{{"a": 1}}{space}')


def test_control_tokens_come_where_they_are_named_and_nowhere_else(tagged: tuple[Vocabulary, Compiler]) -> None:
    vocabulary, compiler = tagged
    free = compiler.compile(UpTo("."))
    allowed = free.begin().allowed()
    controls = [*TAGS, "<other>", "<|im_start|>"]
    assert not any(allowed[vocabulary.tokenise(tag, parse_special=True)[0]] for tag in controls)
    assert not allowed[vocabulary.eos_id] and allowed[vocabulary.tokenise("<")[0]]
    form = in_order(Mark("<think>"), UpTo("</think>"), Mark("<call>"), Json(FREE_OBJECT))
    constraint = compiler.compile(form)
    assert writable(constraint, vocabulary, '<think>a < b</think><call>{"x": "</think"}')
    assert not writable(constraint, vocabulary, '<think>a<other></think><call>{"x": 1}')
    assert not writable(constraint, vocabulary, '<think>a</think>{"x": 1}')
    first = np.flatnonzero(constraint.begin().allowed())
    assert first.tolist() == vocabulary.tokenise("<think>", parse_special=True)


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (Text('a "quote" \\ and\na line'), ['a "quote" \\ and\na line'], ["a", 'a "quote" \\ and a line']),
        (one_of([Text("a"), Text("b")]), ["a", "b"], ["", "ab", "c"]),
        (in_order(Maybe(Text("a")), Text("b")), ["ab", "b"], ["a", "aab"]),
        (Repeated(Text("x"), Text(", "), 3), ["x", "x, x", "x, x, x"], ["", "x, ", "x, x, x, x", "xx"]),
        (Repeated(Text("x"), InOrder(()), 2), ["x", "xx"], ["xxx"]),
        (Repeated(Text("x"), Text(", "), 1), ["x"], ["x, x"]),
        (in_order(UpTo("</a/b>"), Text("x")), ["</a/b>x", "y < z</a/b>x", "</a</a/b>x"], ["x", "</a/b>"]),
        (in_order(UpTo("[E.]*"), Text("x")), ["[E.]*x"], ["[E..]*x"]),
        (one_of([Json('{"type": "integer"}'), in_order(Text("n"), UpTo("."))]), ["7", "n.", "no."], ["x", "7.", "n"]),
    ],
)
def test_forms(compiler: Compiler, vocabulary: Vocabulary, form: Form, good: list[str], bad: list[str]) -> None:
    constraint = compiler.compile(form)
    assert [text for text in good if not writable(constraint, vocabulary, text)] == []
    assert [text for text in bad if writable(constraint, vocabulary, text)] == []


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"not": {"type": "string"}}, 'Unimplemented keys: \\["not"\\]'),
        ({"type": "string", "format": "colour"}, "Unknown format: colour"),
        ({"type": "string", "pattern": "^(?=a)b"}, "look-around"),
        ({"type": 5}, "type must be"),
        ({"$ref": "#"}, "can't be followed"),
        ({"$ref": "https://example.com/schema"}, "."),
        ({"type": "integer", "multipleOf": 1234567}, "multipleOf 1234567"),
        ({"enum": ["x" * 300_000]}, "more than"),
        ({"anyOf": []}, "."),
        ({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(2500)}}, "can't be followed"),
        ([1], "a JSON object"),
    ],
)
def test_what_cannot_be_compiled_is_refused_and_named(compiler: Compiler, schema: object, reason: str) -> None:
    for _ in range(2):  # the second time from what is kept
        with pytest.raises(SchemaRefused, match=reason):
            compiler.compile(Json.of(schema))


def test_deep_schemas_are_refused_not_fatal(compiler: Compiler) -> None:
    schema = '{"type": "array", "items": ' * 900 + "{}" + "}" * 900
    with pytest.raises(SchemaRefused):
        compiler.compile(Json(schema))


def test_leniently_the_rest_of_a_schema_is_kept(compiler: Compiler, vocabulary: Vocabulary) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 99_999, "not": {}}}}
    constraint = compiler.compile(Json.of(schema, lenient=True))
    assert writable(constraint, vocabulary, '{"a": 7}') and not writable(constraint, vocabulary, '{"a": "7"}')


def test_the_author_of_a_schema_has_no_say_in_the_compilers_options(compiler: Compiler, vocabulary: Vocabulary) -> None:
    schema = {"type": "object", "x-guidance": {"whitespace_pattern": r"\s*", "lenient": True}, "not": {}}
    with pytest.raises(SchemaRefused, match="not"):
        compiler.compile(Json.of(schema))
    del schema["not"]
    assert not writable(compiler.compile(Json.of(schema)), vocabulary, "{   }")


def test_equal_forms_are_compiled_once_and_old_ones_forgotten(vocabulary: Vocabulary) -> None:
    compiler = Compiler(vocabulary, {})
    first = compiler.compile(Json('{"type": "integer"}'))
    assert compiler.compile(Json('{"type": "integer"}')) is first
    for number in range(KEPT):
        compiler.compile(Text(f"number {number}"))
    assert compiler.compile(Json('{"type": "integer"}')) is not first


def test_answers_that_share_a_grammar_do_not_disturb_each_other(compiler: Compiler, writer: Writer) -> None:
    constraint = compiler.compile(Json.of(CASES[0].schema))
    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda seed: writer.write(constraint, seed), range(8)))
    assert texts == [writer.write(constraint, seed) for seed in range(8)]
    assert len(set(texts)) > 1


# -- in the engine


def test_an_answer_follows_its_constraint_and_its_logprobs_are_the_free_ones(tiny_model: Path) -> None:
    with running(tiny_model) as engine:
        constraint = Compiler(engine.vocabulary, {}).compile(Text("hello the"))
        prompt = engine.vocabulary.tokenise("hello")
        answer = ask(engine, prompt, 40, constraint=constraint, sampling=SamplingParams(temperature=1, top_logprobs=5))
        assert answer.wait().reason == "stop"
        assert answer.text == "hello the"
        assert engine.vocabulary.is_end(answer.ids[-1])
        total = [sum(np.exp(other.logprob) for other in token.alternatives) for token in answer.tokens]
        assert all(0 < share <= 1.001 for share in total)
        assert all(token.logprob < -1 for token in answer.tokens)  # a random model would say something else
        free = ask(engine, prompt, 1, sampling=SamplingParams(temperature=0, top_logprobs=5))
        free.wait()
        assert [a.id for a in free.tokens[0].alternatives] == [a.id for a in answer.tokens[0].alternatives]


def test_an_answer_that_is_cut_says_length(tiny_model: Path) -> None:
    with running(tiny_model) as engine:
        constraint = Compiler(engine.vocabulary, {}).compile(Text("hello the"))
        answer = ask(engine, engine.vocabulary.tokenise("a"), 3, constraint=constraint)
        assert answer.wait().reason == "length"
        assert "hello the".startswith(answer.text)


def test_a_stop_string_ends_a_constrained_answer(tiny_model: Path) -> None:
    with running(tiny_model) as engine:
        constraint = Compiler(engine.vocabulary, {}).compile(Text("hello the"))
        answer = ask(engine, engine.vocabulary.tokenise("a"), 40, constraint=constraint, stop=("o t",))
        assert (answer.wait().reason, answer.text) == ("stop", "hell")


class Impatient:
    """A constraint that turns out to leave no token after a few."""

    def begin(self) -> Impatient:
        self.left = 3
        return self

    def allowed(self) -> np.ndarray:
        if not self.left:
            raise ValueError("the grammar leaves no token")
        return np.ones(self.size, np.bool_)

    def advance(self, token: int) -> None:
        self.left -= 1

    size = 0


def test_a_constraint_that_leaves_no_token_ends_its_request_alone(tiny_model: Path) -> None:
    with running(tiny_model) as engine:
        constraint = Impatient()
        constraint.size = engine.vocabulary.size
        prompt = engine.vocabulary.tokenise("hello")
        other = ask(engine, prompt, 200)
        answer = ask(engine, prompt, 40, constraint=constraint)
        finished = answer.wait()
        assert finished.reason == "error" and "no token" in (finished.error or "")
        assert len(answer.tokens) == 3
        assert other.wait().reason == "length"
        assert engine.alive and engine.stats().running == 0
