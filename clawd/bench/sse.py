"""Reading a streamed completion over plain HTTP, with the time at which each event arrived."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

COMPLETIONS = "/v1/chat/completions"
DONE = "[DONE]"


def sse_events(
    client: httpx.Client, body: Mapping[str, Any], headers: Mapping[str, str]
) -> Iterator[tuple[float, str]]:
    """(Unix seconds, JSON text) of each event of a streamed chat completion.

    Raises:
        httpx.HTTPError: it was refused, or the connection broke.
        ValueError: the stream doesn't end with `[DONE]`.
    """
    with client.stream("POST", COMPLETIONS, json=body, headers=headers) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: "):
                data = line.removeprefix("data: ")
                if data == DONE:
                    return
                yield time.time(), data
    raise ValueError("the stream ended without [DONE]")
