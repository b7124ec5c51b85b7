"""Instructions in the middle, and several messages of one role in a row, in templates of every habit. Case E6."""

from __future__ import annotations

import pytest

from clawd.model.messages import TemplateForm
from clawd.model.template import ChatTemplate

LOOP = "{% for m in messages %}"
END = "{% endfor %}"
WRITE = "[{{ m.role }}:{{ m.content }}]"
ANY = LOOP + WRITE + END
NO_SYSTEM = LOOP + "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + WRITE + END
FIRST_SYSTEM = (
    "{% if messages[0].role == 'system' %}[system:{{ messages[0].content }}]{% endif %}"
    + LOOP
    + "{% if m.role != 'system' %}"
    + WRITE
    + "{% endif %}"
    + END
)
ALTERNATING = (
    "{% if messages[0].role == 'system' %}[system:{{ messages[0].content }}]"
    + "{% set messages = messages[1:] %}{% endif %}"
    + LOOP
    + "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
    + WRITE
    + END
)

CONVERSATION = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "a"},
    {"role": "user", "content": "b"},
    {"role": "assistant", "content": "c"},
    {"role": "assistant", "content": "d"},
    {"role": "system", "content": "t"},
    {"role": "user", "content": "e"},
]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (ANY, "[system:s][user:a][user:b][assistant:c][assistant:d][system:t][user:e]"),
        (NO_SYSTEM, "[user:s][user:a][user:b][assistant:c][assistant:d][user:t][user:e]"),
        (FIRST_SYSTEM, "[system:s][user:a][user:b][assistant:c][assistant:d][user:t][user:e]"),
        (ALTERNATING, "[system:s][user:a\n\nb][assistant:c\n\nd][user:t\n\ne]"),
    ],
)
def test_every_message_reaches_the_prompt(source: str, text: str) -> None:
    template = ChatTemplate(source)
    before = [dict(message) for message in CONVERSATION]
    assert template.render(*TemplateForm(template).adapt(CONVERSATION, None)) == text
    assert before == CONVERSATION, "what is stored stays as it came"


def test_a_result_of_a_tool_joins_the_words_around_it_where_a_template_knows_neither() -> None:
    template = ChatTemplate(ALTERNATING)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "user", "content": "and?"},
    ]
    text = template.render(*TemplateForm(template).adapt(messages, None))
    assert text.endswith("[user:<tool_response>\nr\n</tool_response>\n\nand?]")
