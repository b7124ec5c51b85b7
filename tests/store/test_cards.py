"""Preference cards: one rule once, a person's word above a hint's, bounded, and migrated to."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from sqlite_utils import Database

from clawd.errors import UnknownName
from clawd.store import Store
from clawd.store.cards import same_rule
from clawd.store.schema import migrations
from tests.store.world import World

SAME = [
    ("Answer in one sentence.", "answer in one sentence"),
    ("Use bullet lists", "Please use bullet list!"),
    ("Don't use emoji", "dont use emojis"),
    ("Keep the answer short", "keep answers short"),
    ("Nicht duzen!", "nicht duzen"),
]
DIFFERENT = [
    ("Do use bullet lists in all of your answers to me", "Do not use bullet lists in all of your answers to me"),
    ("Use lists, not tables", "Use tables, not lists"),
    ("Answer in one sentence", "Answer in two sentences"),
    ("Always use emoji", "Never use emoji"),
    ("You can use emoji", "You can't use emoji"),
    ("Be formal", "Be informal"),
    ("At most 10 lines", "At most 100 lines"),
    ("Mention what is necessary", "Mention what is unnecessary"),
    ("请在回答中使用项目符号列表和表格来说明", "请在回答中不使用项目符号列表和表格来说明"),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_the_same_rule_in_other_words(left: str, right: str) -> None:
    assert same_rule(left, right)
    assert same_rule(right, left)


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_another_rule_in_nearly_the_same_words(left: str, right: str) -> None:
    assert not same_rule(left, right)
    assert not same_rule(right, left)


def hinted(world: World, text: str) -> str:
    """A turn that a hint was given to."""
    return world.store.signals.get(world.sample(reward=-1, hint=text)).turn_id


def texts(world: World) -> list[str]:
    return [line.text for line in world.store.cards.lines(world.user.adapter.id)]


def test_hints_are_taken_up_once_and_dated(world: World) -> None:
    adapter = world.user.adapter.id
    before = time.time()
    first = [hinted(world, "Be  brief."), hinted(world, "No lists.")]
    world.store.cards.learn(adapter, first, most=8)
    assert texts(world) == ["Be brief.", "No lists."]
    brief, lists = world.store.cards.lines(adapter)
    assert brief.source == "hint"
    assert before <= brief.created_at == brief.confirmed_at <= lists.created_at
    again = hinted(world, "be brief")
    world.store.cards.learn(adapter, [again], most=8)
    confirmed = world.store.cards.lines(adapter)[0]
    assert texts(world) == ["Be brief.", "No lists."]
    assert confirmed.created_at == brief.created_at < confirmed.confirmed_at
    world.store.cards.learn(adapter, [*first, again], most=8)  # an update that is tried again
    assert world.store.cards.lines(adapter)[0] == confirmed


def test_of_too_many_the_hint_that_was_said_longest_ago_makes_room(world: World) -> None:
    adapter = world.user.adapter.id
    world.store.cards.write(adapter, "Call me Ada.")
    turns = [hinted(world, text) for text in ("One.", "Two.", "Three.", "one")]
    world.store.cards.learn(adapter, turns, most=3)
    assert texts(world) == ["Call me Ada.", "One.", "Three."]
    world.store.cards.learn(adapter, [], most=1)
    assert texts(world) == ["Call me Ada."]  # a person's own line stays
    world.store.cards.write(adapter, "Metric units.")
    world.store.cards.learn(adapter, turns, most=1)
    assert texts(world) == ["Call me Ada.", "Metric units."]


def test_what_a_person_takes_off_no_hint_brings_back(world: World) -> None:
    adapter = world.user.adapter.id
    turn = hinted(world, "No lists.")
    world.store.cards.learn(adapter, [turn], most=8)
    assert world.store.cards.remove(adapter, 1).text == "No lists."
    world.store.cards.learn(adapter, [turn, hinted(world, "no lists")], most=8)
    assert texts(world) == []
    world.store.cards.write(adapter, "No lists at all")
    world.store.cards.write(adapter, "No lists!")
    assert texts(world) == ["No lists!", "No lists at all"]


def test_a_persons_word_takes_a_hint_over(world: World) -> None:
    adapter = world.user.adapter.id
    world.store.cards.learn(adapter, [hinted(world, "be brief")], most=8)
    world.store.cards.write(adapter, "Be brief, please.")
    (line,) = world.store.cards.lines(adapter)
    assert (line.text, line.source) == ("Be brief, please.", "person")


@pytest.mark.parametrize("number", [0, 2, -1])
def test_there_is_no_such_line(world: World, number: int) -> None:
    world.store.cards.write(world.user.adapter.id, "Be brief.")
    with pytest.raises(UnknownName, match="has 1 lines"):
        world.store.cards.remove(world.user.adapter.id, number)


def test_an_empty_line_is_refused(world: World) -> None:
    with pytest.raises(UnknownName, match="needs words"):
        world.store.cards.write(world.user.adapter.id, " \n ")


def test_an_edited_card_keeps_what_was_not_touched(world: World) -> None:
    adapter = world.user.adapter.id
    world.store.cards.learn(adapter, [hinted(world, "Be brief."), hinted(world, "No lists.")], most=8)
    brief = world.store.cards.lines(adapter)[0]
    world.store.cards.replace(adapter, ["Be brief.", "", "Metric units."])
    lines = world.store.cards.lines(adapter)
    assert [line.text for line in lines] == ["Be brief.", "Metric units."]
    assert lines[0] == brief
    assert [line.source for line in lines] == ["hint", "person"]


def test_a_line_that_was_only_reworded_stays(world: World) -> None:
    adapter = world.user.adapter.id
    world.store.cards.write(adapter, "be brief")
    world.store.cards.replace(adapter, ["Be brief!"])
    assert texts(world) == ["Be brief!"]


def test_another_adapters_card_is_another(world: World) -> None:
    other, _ = world.store.people.add("bea")
    world.store.cards.write(world.user.adapter.id, "Be brief.")
    world.store.cards.write(other.adapter.id, "Be brief.")
    assert world.store.cards.remove(other.adapter.id, 1).text == "Be brief."
    assert texts(world) == ["Be brief."]


def test_a_database_from_before_cards_gets_them(tmp_path: Path) -> None:
    path = tmp_path / "clawd.db"
    raw = sqlite3.connect(path)
    migrations.apply(Database(raw), stop_before="0002_preference_cards")
    assert not raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'card_lines'").fetchall()
    raw.close()
    with Store(path) as store:
        adapter = store.people.named("default").adapter
        store.cards.write(adapter.id, "Be brief.")
        assert store.verify() == []
