"""Messages to prompt ids: the one place where that happens, so that what is trained is what was served.

Only the template writes control tokens: what messages, tools and arguments spell of them stays text (`guard.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from clawd.errors import TemplateError
from clawd.model.guard import Guard, Rendered, spans
from clawd.model.messages import TemplateForm
from clawd.model.replies.families import OWN_TAGS
from clawd.model.template import ChatTemplate
from clawd.model.vocab import Vocabulary


class PromptRenderer:
    """Renders with `template` and tokenises with `vocabulary`."""

    def __init__(self, vocabulary: Vocabulary, template: ChatTemplate) -> None:
        self.vocabulary = vocabulary
        self.template = template
        self.form = TemplateForm(template)
        self.control = vocabulary.control_texts()

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
        try:
            guard = Guard(self.control, OWN_TAGS, messages, tools, variables)
            shaped, offered = self.form.adapt(guard.messages, guard.tools)
            text = self.template.render(shaped, offered, add_generation_prompt, **guard.variables)
        except RecursionError:
            raise TemplateError("The messages, tools or template arguments are nested too deeply.") from None
        return self._tokenise(guard.restored(text))

    def _tokenise(self, rendered: Rendered) -> list[int]:
        ids: list[int] = []
        for text, parse_special in spans(rendered, self.control):
            ids += self._read(text) if parse_special else self.vocabulary.tokenise(text)
        return self._with_bos(ids)

    def tokenise(self, text: str) -> list[int]:
        """Ids of a prompt that somebody has rendered: control tokens in it are such."""
        return self._with_bos(self._read(text))

    def _read(self, text: str) -> list[int]:
        pieces = (self.vocabulary.tokenise(piece, parse_special=True) for piece in self.control.pieces(text))
        return list(chain.from_iterable(pieces))

    def _with_bos(self, ids: list[int]) -> list[int]:
        bos = self.vocabulary.bos_id
        if self.vocabulary.adds_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids
