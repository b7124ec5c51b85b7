"""What a request for bare completions may hold."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import Field, StrictInt, field_validator, model_validator

from clawd.server.openai_chat.schema import GenerationFields

MAX_TOKENS = 16
"""Of an answer whose request names no limit: this API's own default."""

MAX_LOGPROBS = 20
MAX_TOTAL = 64  # answers to one request

Ids = list[StrictInt]


class CompletionRequest(GenerationFields):
    """`POST /v1/completions`."""

    prompt: str | list[str] | Ids | list[Ids]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = False
    suffix: str | None = None
    best_of: int | None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _is_prompt(cls, prompt: Any) -> Any:
        """Said in one sentence; the union's own complaint names each of its forms."""
        one = [prompt] if isinstance(prompt, str) or (isinstance(prompt, list) and _are_ids(prompt)) else prompt
        if not isinstance(one, list) or not one or not all(isinstance(p, str) or _are_ids(p) for p in one):
            raise ValueError("send a string, a list of token ids, or a list of either, none of them empty")
        if len({isinstance(p, str) for p in one}) > 1:
            raise ValueError("send either strings or lists of token ids, not both")
        return prompt

    @field_validator("suffix")
    @classmethod
    def _no_suffix(cls, suffix: str | None) -> str | None:
        if suffix:
            raise ValueError("the models that clawd serves can't fill in a middle: leave suffix out")
        return suffix

    @model_validator(mode="after")
    def _can_be_done(self) -> CompletionRequest:
        if self.best_of not in (None, 1, self.n or 1):
            raise ValueError("best_of: all answers are given: send n, and leave best_of out")
        if self.echo and self.logprobs is not None:
            raise ValueError("echo: the log-probabilities of prompt tokens aren't computed: leave out echo or logprobs")
        if len(self.prompts()) * (self.n or 1) > MAX_TOTAL:
            raise ValueError(f"prompt: at most {MAX_TOTAL} answers per request, n for each prompt")
        return self

    def prompts(self) -> list[str | list[int]]:
        if isinstance(self.prompt, str) or _are_ids(self.prompt):
            return [cast("str | list[int]", self.prompt)]
        return list(cast("list[str | list[int]]", self.prompt))

    def alternatives(self) -> int:
        return self.logprobs or 0


def _are_ids(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)
    )
