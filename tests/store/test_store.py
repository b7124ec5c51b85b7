"""The file itself: users, keys, other processes, damage, newer schemas."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from clawd.errors import NameRefused, StoreError, UnknownName
from clawd.store import Store
from clawd.store.records import Vote
from tests.store.world import BASE, World


def test_a_key_is_told_once_and_found_by_its_hash_alone(store: Store) -> None:
    user, key = store.people.add("ada")
    assert store.people.with_key(key) == user
    assert store.people.with_key(key + "x") is None
    assert user.adapter.name == "ada"
    assert key not in "".join(str(row) for row in store._connection.rows("SELECT * FROM users"))
    with pytest.raises(NameRefused, match="already"):
        store.people.add("ada")


@pytest.mark.parametrize("name", ["", "../../x", "a/b", "a\0b", "x" * 300, "-a", ".", "ä", "a b", "a\n"])
def test_names_that_could_leave_the_folder_are_refused(store: Store, name: str) -> None:
    with pytest.raises(NameRefused):
        store.people.add(name)


def test_unknown_names_are_an_error(store: Store) -> None:
    with pytest.raises(UnknownName):
        store.people.named("nobody")
    with pytest.raises(UnknownName):
        store.turns.get("nothing")


def test_only_its_owner_can_read_the_file(tmp_path: Path) -> None:
    with Store(tmp_path / "clawd.db"):
        assert stat.S_IMODE((tmp_path / "clawd.db").stat().st_mode) == 0o600


def test_opening_again_finds_everything_and_migrates_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "clawd.db") as store:
        sample = World(store).sample(reward=-1, hint="Be brief.")
    with Store(tmp_path / "clawd.db") as store:
        found = store.signals.get(sample)
        assert (found.reward, found.state) == (-1, "waiting")
        assert [hint.text for hint in store.signals.hints(found.turn_id)] == ["Be brief."]


def test_a_file_of_a_newer_clawd_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "clawd.db"
    with Store(path) as store:
        store._connection.change(
            "INSERT INTO _sqlite_migrations(migration_set, name, applied_at) VALUES ('clawd', '9999_future', '')"
        )
    with pytest.raises(StoreError, match="newer clawd"):
        Store(path)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "clawd.db"
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError, match="can't be used"):
        Store(path)
    assert path.read_bytes().startswith(b"not a database")


def test_writers_of_several_connections_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "clawd.db"
    errors: list[BaseException] = []

    def write() -> None:
        try:
            with Store(path) as own:
                world = World(own)
                for _ in range(10):
                    world.sample()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with Store(path) as store:
        assert store.signals.counts() == {"waiting": 80}
        assert store.verify() == []


def test_feedback_changes_a_waiting_sample_and_not_a_claimed_one(world: World) -> None:
    sample = world.store.signals.get(world.sample(reward=1))
    assert (
        world.store.signals.feedback(sample.turn_id, Vote("feedback", -1, "feedback", "Be brief.")) == "sample changed"
    )
    assert world.store.signals.get(sample.id).reward == -1
    assert world.store.updates.claim(world.user.adapter.id, BASE, 1, {}) is not None
    assert world.store.signals.feedback(sample.turn_id, Vote("feedback", 1, "feedback")) == "none"
    assert world.store.signals.get(sample.id).reward == -1
    assert [vote.score for vote in world.store.signals.votes(sample.turn_id)] == [1, -1, 1]


def test_feedback_that_was_taken_back_can_be_given_again(world: World) -> None:
    sample = world.store.signals.get(world.sample(reward=1))
    for score, state in ((0, "quarantined"), (1, "waiting"), (0, "quarantined"), (-1, "waiting")):
        vote = Vote("feedback", score, "feedback")
        assert world.store.signals.feedback(sample.turn_id, vote) == "sample changed"
        assert world.store.signals.get(sample.id).state == state
    assert world.store.signals.get(sample.id).reward == -1
    world.store.signals.quarantine(sample.id, "too long")
    assert world.store.signals.feedback(sample.turn_id, Vote("feedback", 1, "feedback")) == "none"


def test_text_that_utf8_cannot_hold_is_stored_as_far_as_it_can(world: World) -> None:
    turn_id = world.turn()
    world.store.signals.add_vote(turn_id, Vote("llm:x", 1, "r\ud800", "h\udfff", "a\ud800"))
    (vote,) = world.store.signals.votes(turn_id)
    assert (vote.reason, vote.hint, vote.answer) == ("r?", "h?", "a?")


def test_feedback_sends_a_turn_to_the_judge_without_a_next_state(world: World) -> None:
    waiting, closed = world.turn(world.session("a")), world.turn(world.session("b"))
    world.store.sessions.close(world.session("b").id, "done")
    for turn_id in (waiting, closed):
        assert world.store.signals.feedback(turn_id, Vote("feedback", 1, "feedback")) == "judging"
    assert world.store.turns.to_judge(10) == [waiting, closed]


def test_feedback_that_takes_the_only_signal_quarantines_the_sample(world: World) -> None:
    sample = world.store.signals.get(world.sample(reward=1))
    assert world.store.signals.feedback(sample.turn_id, Vote("feedback", 0, "feedback")) == "sample changed"
    assert world.store.signals.get(sample.id).state == "quarantined"


def test_the_newest_event_says_what_holds_now(store: Store) -> None:
    assert store.newest_event(("down", "up"), "judge") is None
    for kind, subject in [("down", "judge"), ("up", "judge"), ("down", "judge"), ("up", "other"), ("else", "judge")]:
        store.event(kind, subject)
    newest = store.newest_event(("down", "up"), "judge")
    assert newest is not None and newest["kind"] == "down"
