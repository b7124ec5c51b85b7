"""Which responses can't be trained on, whatever anybody thought of them."""

from __future__ import annotations

from clawd.degenerate import degenerate
from clawd.store.records import Turn


def unusable(turn: Turn) -> str | None:
    """Why nothing can be learnt from this response; none: it can be."""
    ended = turn.finish_reason == "stop"
    return degenerate(turn.response_ids[: len(turn.response_ids) - ended], turn.response_text)
