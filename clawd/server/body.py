"""What all request bodies have in common: text that UTF-8 can hold, and numbers that JSON can."""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, model_validator

from clawd.store.codec import clean_text


class Body(BaseModel):
    """A JSON body. Half surrogate pairs, which JSON can carry and nothing else here can, become `?` at the door.

    `NaN`, and numbers beyond what a double holds, are refused: they can't be given back, stored or shown as JSON.
    """

    @model_validator(mode="before")
    @classmethod
    def _as_utf8_holds_it(cls, data: Any) -> Any:
        try:
            return cleaned(data)
        except RecursionError:
            raise ValueError("nested too deeply") from None


def cleaned(value: Any) -> Any:
    """`value` with every text in it cleaned, keys included. As deep as the JSON parser went.

    Raises:
        ValueError: a number in it isn't finite.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number in it is NaN, or too large")
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    if isinstance(value, dict):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    return value
