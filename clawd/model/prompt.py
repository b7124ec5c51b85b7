"""Messages to prompt ids: the one place where that happens, so that what is trained is what was served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clawd.errors import TemplateError
from clawd.model.messages import TemplateForm
from clawd.model.template import ChatTemplate
from clawd.model.vocab import Vocabulary


class PromptRenderer:
    """Renders with `template` and tokenises with `vocabulary`."""

    def __init__(self, vocabulary: Vocabulary, template: ChatTemplate) -> None:
        self.vocabulary = vocabulary
        self.template = template
        self.form = TemplateForm(template)

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> PromptRenderer:
        """With the chat template of the model file itself.

        Raises:
            TemplateError: the file has none, or one that can't be used.
        """
        info = vocabulary.info
        if info.chat_template is None:
            raise TemplateError(f"{info.path} has no chat template: serve an instruct model's file.")
        return cls(vocabulary, ChatTemplate(info.chat_template, info.bos, info.eos))

    def prompt_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int]:
        """Token ids to feed to the engine. BOS is there once if the model wants it, whoever writes it.

        Messages and tools are as clients send them, calls' arguments as JSON text; `messages.py` says what becomes of
        them. Tools reach the prompt even if the template knows none.

        Raises:
            TemplateError: the template fails on these messages.
        """
        messages, tools = self.form.adapt(messages, tools)
        return self.tokenise(self.template.render(messages, tools, add_generation_prompt, **variables))

    def tokenise(self, text: str) -> list[int]:
        """Ids of a rendered prompt."""
        ids = self.vocabulary.tokenise(text, parse_special=True)
        bos = self.vocabulary.bos_id
        if self.vocabulary.adds_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids
