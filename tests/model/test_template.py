from __future__ import annotations

import time

import pytest

from clawd.errors import TemplateError
from clawd.model.template import ChatTemplate

USER = [{"role": "user", "content": "hi"}]


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>", time_limit_s=0.3).render(USER, **variables)


def test_what_model_authors_expect_is_there() -> None:
    messages = [{"role": "user", "content": "a<b & é"}, {"role": "assistant", "content": "ok"}]
    source = """{%- for message in messages %}
    {%- if loop.index0 == 5 %}{% break %}{% endif %}
{{ loop.index ~ '/' ~ loop.length ~ ' ' ~ message.role }}: {{ message | tojson }}
{% endfor %}
{%- if add_generation_prompt %}{{ bos_token }}go{{ eos_token }}{% endif %}"""
    assert ChatTemplate(source, "<s>", "</s>").render(messages) == (
        '1/2 user: {"role": "user", "content": "a<b & é"}\n'
        '2/2 assistant: {"role": "assistant", "content": "ok"}\n'
        "<s>go</s>"
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0]['content'].ljust(4) }}|", "hi  |"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("{% for k, v in messages[0] | items %}{{ k }}={{ v }};{% endfor %}", "role=user;content=hi;"),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% else %}none{% endfor %}", "hi"),
        ("{% for m in nothing %}{% else %}none{% endfor %}", "none"),
        ("{{ messages | map(attribute='role') | join(',') }}", "user"),
        ("{{ '%s-%02d' % ('a', 3) }} {{ '{:>4}'.format(7) }} {{ '%d' | format(5) }}", "a-03    7 5"),
        ("{{ tools is none }} {{ documents is defined }} {{ enable_thinking }}", "True False False"),
        ("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(messages[-1].content) }}", "[hi]"),
        ("{{ messages[::-1][0].role }}{{ 'a,b'.split(',')[1] }}", "userb"),
        ("{{ {'a': 1, 'b': [1, 2]} | tojson(indent=1) }}", '{\n "a": 1,\n "b": [\n  1,\n  2\n ]\n}'),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ],
)
def test_usual_constructs(source: str, text: str) -> None:
    assert render(source, enable_thinking=False) == text


@pytest.mark.parametrize(
    "source",
    ["{% for m in messages %}", "{% generation %}x{% endgeneration %}", "{{ x | no_such_filter }}", "{{ 'open }}"],
)
def test_a_template_that_does_not_compile_is_refused_at_load(source: str) -> None:
    with pytest.raises(TemplateError, match="line 1"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{{ '{0.__class__.__mro__}'.format(messages) }}", "unsafe"),
        ("{% include 'other' %}", "no loader"),
        ("{{ messages[0].no.such }}", "no attribute"),
    ],
)
def test_refusals_and_escapes_are_template_errors(source: str, why: str) -> None:
    with pytest.raises(TemplateError, match=why):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s ~ 1 }}",
        "{% set ns = namespace(n=9**999) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
        "{% set ns = namespace(s='a' * 20000) %}{% for i in [1] %}{% set ns.s = ns.s.replace('a', ns.s) %}{% endfor %}",
        "{{ 'a' * 10**9 }}",
        "{{ [0] * 10**9 }}",
        "{{ 2 ** (10**9) }}",
        "{{ 'a'.ljust(10**10) }}",
        "{{ 'a' | center(10**10) }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%9999999999d' | format(1) }}",
    ],
)
def test_templates_that_never_end_or_blow_up_are_cut_short(source: str) -> None:
    started = time.monotonic()
    with pytest.raises(TemplateError):
        render(source)
    assert time.monotonic() - started < 3  # the limit is 0.3 s; the rest is for a busy machine


def test_one_rendering_does_not_use_up_the_next_ones_budget() -> None:
    template = ChatTemplate("{{ 'a' * 9000000 }}")
    for _ in range(5):
        assert len(template.render(USER)) == 9_000_000
