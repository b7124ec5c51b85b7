"""Server-sent events as bytes."""

from __future__ import annotations

import json
from typing import Any

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
COMMENT = b": reading the prompt\n\n"
DONE = b"data: [DONE]\n\n"


def sse(data: dict[str, Any], event: str | None = None) -> bytes:
    """One event, named if `event` is given."""
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
