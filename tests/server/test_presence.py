"""Who counts as being answered, seen through the pipe that updates look at, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from clawd.presence import PresenceWatch
from tests.server.live import Live


@pytest.fixture
def watch(live: Live) -> Iterator[PresenceWatch]:
    made = PresenceWatch(live.services.folder.presence)
    yield made
    made.close()


def seen_while_streaming(live: Live, watch: PresenceWatch, **headers: str) -> list[bool]:
    """Whether somebody was present, at each event of a stream that was far from its end."""
    stream = live.openai(**headers).chat.completions.create(
        model="clawd", messages=[{"role": "user", "content": "Tell me a story."}], max_tokens=300, stream=True
    )
    seen = [watch.present() for _, _ in zip(range(5), stream, strict=False)]
    stream.close()
    return seen


def gone(watch: PresenceWatch) -> bool:
    deadline = time.monotonic() + 30
    while watch.present():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_person(live: Live, watch: PresenceWatch) -> None:
    assert gone(watch)
    assert all(seen_while_streaming(live, watch))
    assert gone(watch)


def test_a_person_who_hangs_up(live: Live, watch: PresenceWatch) -> None:
    stream = live.openai().chat.completions.create(
        model="clawd", messages=[{"role": "user", "content": "Count."}], max_tokens=2000, stream=True
    )
    next(iter(stream))
    assert watch.present()
    stream.close()
    assert gone(watch)


def test_a_judge_is_nobody(live: Live, watch: PresenceWatch) -> None:
    assert gone(watch)
    assert not any(seen_while_streaming(live, watch, X_Clawd_Priority="background"))
