"""Who counts as being answered, seen through the pipe that updates look at, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import pytest

from clawd.presence import PresenceWatch
from tests.server.live import Live


@pytest.fixture
def watch(live: Live) -> Iterator[PresenceWatch]:
    made = PresenceWatch(live.services.folder.presence)
    yield made
    made.close()


def tokens(live: Live, **headers: str) -> Generator[None, None, None]:
    """One for each piece of text of a stream that is far from its end; closing it hangs up."""
    stream = live.openai(**headers).chat.completions.create(
        model="clawd", messages=[{"role": "user", "content": "Tell me a story."}], max_tokens=2000, stream=True
    )
    try:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                yield
    finally:
        stream.close()


def seen_while_streaming(live: Live, watch: PresenceWatch, **headers: str) -> list[bool]:
    """Whether somebody was present at the first tokens; then it is hung up."""
    answer = tokens(live, **headers)
    seen = [watch.present() for _, _ in zip(range(5), answer, strict=False)]
    answer.close()
    return seen


def gone(watch: PresenceWatch) -> bool:
    deadline = time.monotonic() + 30
    while watch.present():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_person_is_present_until_they_hang_up(live: Live, watch: PresenceWatch) -> None:
    assert gone(watch)
    assert seen_while_streaming(live, watch) == [True] * 5
    assert gone(watch)


def test_a_person_is_present_until_their_answer_ends(live: Live, watch: PresenceWatch) -> None:
    assert live.chat("Tell me a story.").status_code == 200
    assert gone(watch)


def test_a_judge_is_nobody(live: Live, watch: PresenceWatch) -> None:
    assert gone(watch)
    assert seen_while_streaming(live, watch, X_Clawd_Priority="background") == [False] * 5
