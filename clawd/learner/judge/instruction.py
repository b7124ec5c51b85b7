"""A correction in the user's own words, turned from a question or a complaint into an instruction.

The teacher reads it as a note on an answer to come: "it's far too long" says nothing about that one, "not too long"
does. Only the opening changes, and nothing is added that the user didn't say.
"""

from __future__ import annotations

import re

OPENINGS = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (r"(?:can|could|would|will) (?:you|u) (?:please |maybe |perhaps |possibly )?(?!not\b)(?=\w+ )", ""),
        (r"(?:can|could|would|will) (?:you|u) (?:please )?not (?=\w+ )", "don't "),
        (
            r"(?:(?:that|this|it)(?:'s| is| was) |(?:you're|you are) (?:being )?|there(?:'s| is| are| was| were) )?"
            r"(?:(?:just|still|way|far|much|rather|slightly|a bit|a little|a tad|bit|kinda) )*too (?=\w+)",
            "not too ",
        ),
    )
)


def instruction(correction: str) -> str:
    for opening, instead in OPENINGS:
        if found := opening.match(correction):
            return instead + correction[found.end() :]
    return correction
