"""Labelled replies of users: a JSON list of objects, checked when read.

`reply` is what the user wrote, `score` what it says about the response (-1, 0 or 1), `correction` whether it says how
the response should have been. `asked` and `response` may tell what came before.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from clawd.errors import LabelsRefused
from clawd.store.records import Reward

ASKED = "How do I bake bread?"
RESPONSE = "Bread is made of flour, water, salt and yeast."
HELD_OUT = "replies.json"


class Labelled(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    reply: str
    score: Reward
    correction: bool = False
    asked: str = ASKED
    response: str = RESPONSE


_CASES = TypeAdapter(list[Labelled])


def read_labelled(file: Path | None) -> list[Labelled]:
    """The replies of `file`, or those that come with clawd, which no rule was tuned on.

    Raises:
        LabelsRefused: the file can't be read or isn't such a list.
    """
    if file is None:
        return _CASES.validate_json(files(__package__).joinpath(HELD_OUT).read_bytes())
    try:
        cases = _CASES.validate_json(file.read_bytes())
    except OSError as error:
        raise LabelsRefused(f"{file} can't be read: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise LabelsRefused(
            f'{file} is no list of objects like {{"reply": "Too long.", "score": -1}}: {where} {first["msg"]}.'
        ) from None
    if not cases:
        raise LabelsRefused(f"{file} holds no replies.")
    return cases
