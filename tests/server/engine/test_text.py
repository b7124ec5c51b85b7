from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clawd.server.engine.text import ShownText


def test_text_without_stop_strings_is_shown_at_once() -> None:
    shown = ShownText(())
    assert [shown.feed(b"a"), shown.feed(b"b c"), shown.finish()] == ["a", "b c", ""]


def test_what_may_begin_a_stop_string_waits() -> None:
    shown = ShownText(("END", "\n\n"))
    assert [shown.feed(b"one E"), shown.feed(b"N"), shown.feed(b"x"), shown.feed(b"\n")] == ["one ", "", "ENx", ""]
    assert not shown.stopped
    assert shown.finish() == "\n"


def test_a_stop_string_is_not_shown_and_nothing_after_it() -> None:
    shown = ShownText(("END",))
    assert [shown.feed(b"so E"), shown.feed(b"ND and more")] == ["so ", ""]
    assert shown.stopped
    assert shown.finish() == ""


def test_the_first_stop_string_in_the_text_counts() -> None:
    shown = ShownText(("late", "so"))
    assert shown.feed(b"and so on, late") == "and "
    assert (shown.stopped, shown.matched) == (True, "so")


def test_an_empty_stop_string_stops_nothing() -> None:
    shown = ShownText(("",))
    assert shown.feed(b"abc") == "abc"
    assert not shown.stopped


def test_half_a_character_waits() -> None:
    shown = ShownText(("!",))
    data = "é".encode()
    assert [shown.feed(data[:1]), shown.feed(data[1:])] == ["", "é"]
    assert [shown.feed(data[:1]), shown.finish()] == ["", "\ufffd"]


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.integers(1, 4))
def test_cutting_into_tokens_changes_nothing(text: str, stop: list[str], size: int) -> None:
    shown = ShownText(tuple(stop))
    parts = []
    for at in range(0, len(text), size):
        parts.append(shown.feed(text[at : at + size].encode()))
        if shown.stopped:
            break
    parts.append(shown.finish())
    found = [at for at in (text.find(s) for s in stop) if at >= 0]
    first = min(found) if found else len(text)
    # A longer stop string may begin before one that ends earlier: then the earlier end wins.
    assert text.startswith("".join(parts))
    assert len("".join(parts)) >= first
    assert shown.stopped == bool(found)
