"""Cases S1, S3, S7: which session a request belongs to, and what it says of the turn before. Real store, no model."""

from __future__ import annotations

import pytest

from clawd.errors import NameRefused
from clawd.store import Store
from clawd.store.records import Message
from tests.server.posting import Client, assistant, user


@pytest.mark.parametrize(("headers", "evidence"), [({"x_session_id": "s-1"}, "header"), ({}, "conversation")])
def test_a_conversation_is_one_session(store: Store, headers: dict[str, str], evidence: str) -> None:
    turns = Client(store, **headers).talk("one", "two", "three")
    assert len({placement.session.id for placement, _ in turns}) == 1
    assert store.sessions.counts_by_evidence() == {evidence: 1}
    stored = [store.turns.get(turn_id) for _, turn_id in turns]
    assert [turn.kind for turn in stored] == ["main"] * 3
    assert [turn.state for turn in stored] == ["judging", "judging", "waiting"]
    assert [turn.next_state for turn in stored] == [[user("two")], [user("three")], None]
    assert [turn.previous_id for turn in stored] == [None, stored[0].id, stored[1].id]


def test_what_clients_do_to_history_does_not_cut_a_conversation(store: Store) -> None:
    client = Client(store)
    first, first_id = client.post([{"role": "system", "content": "Monday"}, user("hi ")], "Hello!\n")
    rewritten = [
        {"role": "developer", "content": "Tuesday"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": "Hello!", "reasoning_content": "greets"},
        user("how are you?"),
    ]
    second, _ = client.post(rewritten)
    assert second.session.id == first.session.id
    assert store.turns.get(first_id).next_state == [user("how are you?")]


def test_an_edited_message_goes_on_from_the_turn_before_it(store: Store) -> None:
    client = Client(store)
    turns = client.talk("one", "two")
    fork = [user("one"), assistant("answer 0"), user("two, but better")]
    placement, _ = client.post(fork)
    assert placement.session.id == turns[0][0].session.id
    assert placement.previous is not None and placement.previous.id == turns[0][1]
    assert store.turns.get(turns[0][1]).next_state == [user("two")]
    assert store.turns.get(turns[1][1]).state == "waiting"


@pytest.mark.parametrize("headers", [{}, {"x_session_id": "s"}])
def test_a_request_sent_again_after_a_timeout_is_one_turn(store: Store, headers: dict[str, str]) -> None:
    client = Client(store, **headers)
    cut, cut_id = client.post([user("long question")], answer=None)
    again, again_id = client.post([user("long question")])
    assert cut.session.id == again.session.id
    assert store.turns.get(cut_id).reason == "aborted"
    assert store.turns.counts() == {"discarded: aborted": 1, "waiting": 1}
    client.post([user("long question"), assistant("fine"), user("thanks")])
    assert store.turns.get(again_id).next_state == [user("thanks")]
    assert store.turns.get(cut_id).state == "discarded"


@pytest.mark.parametrize("headers", [{}, {"x_session_id": "s"}])
def test_a_finished_request_sent_again_is_no_reaction_and_counts_once(store: Store, headers: dict[str, str]) -> None:
    client = Client(store, **headers)
    _, first = client.post([user("question")], "lost on the way")
    _, second = client.post([user("question")], "arrived")
    assert store.turns.get(first).next_state is None
    assert store.turns.counts() == {"discarded: retried": 1, "waiting": 1}
    client.post([user("question"), assistant("arrived"), user("thanks")])
    assert store.turns.get(second).state == "judging"
    assert store.turns.to_judge(10) == [second]


def test_the_answer_that_did_arrive_is_the_one_that_counts(store: Store) -> None:
    client = Client(store)
    _, first = client.post([user("question")], "seen")
    _, second = client.post([user("question")], "never seen")
    client.post([user("question"), assistant("seen"), user("thanks")])
    assert store.turns.get(first).state == "judging"
    assert store.turns.get(second).reason == "retried"


def test_two_users_in_step_never_meet(store: Store) -> None:
    ada, _ = store.people.add("ada")
    bob, _ = store.people.add("bob")
    clients = [Client(store, ada, x_session_id="same"), Client(store, bob, x_session_id="same")]
    history: list[Message] = []
    for number in range(3):
        history = [*history, user(f"question {number}")]
        placements = [client.post(history, "same answer")[0] for client in clients]
        assert placements[0].session.id != placements[1].session.id
        history = [*history, assistant("same answer")]
    assert store.verify() == []
    for who in (ada, bob):
        sessions = store.sessions.all(who.id)
        assert len(sessions) == 1
        turns = [store.turns.get(turn_id) for turn_id in store.turns.ids_of_session(sessions[0].id)]
        assert {turn.user_id for turn in turns} == {who.id}
        assert {turn.adapter_id for turn in turns} == {who.adapter.id}


def test_a_side_turn_says_nothing_about_the_turn_before(store: Store) -> None:
    client = Client(store)
    _, first = client.post([user("one")], "answer")
    client.headers["x-turn-type"] = "side"
    side, side_id = client.post([user("one"), assistant("answer"), user("summarise this")], "a summary")
    del client.headers["x-turn-type"]
    _, _ = client.post([user("one"), assistant("answer"), user("two")])
    assert (side.kind, side.kind_evidence) == ("side", "header")
    assert store.turns.get(side_id).reason == "side turn"
    assert store.turns.get(first).next_state == [user("two")]


def test_a_named_session_with_rewritten_history_still_gets_its_next_state(store: Store) -> None:
    client = Client(store, x_session_id="s")
    _, first = client.post([user("one")], "first answer")
    client.post([user("(compacted)"), assistant("something else"), user("no, that's wrong")])
    assert store.turns.get(first).next_state == [user("no, that's wrong")]


def test_a_session_said_to_be_done_is_told_so(store: Store) -> None:
    placement, _ = Client(store, x_session_id="s", x_session_done="true").post([user("bye")])
    assert placement.is_last


def test_a_tool_result_is_a_next_state_and_an_own_remark_is_not(store: Store) -> None:
    client = Client(store)
    _, first = client.post([user("list files")], "ls")
    result = {"role": "tool", "tool_call_id": "call1", "content": "a.txt"}
    client.post([user("list files"), assistant("ls"), result])
    assert store.turns.get(first).next_state == [result]
    _, other = client.post([user("other")], "hm")
    client.post([user("other"), assistant("hm"), {"role": "system", "content": "note"}])
    assert store.turns.get(other).next_state is None


@pytest.mark.parametrize("key", ["", " ", "x" * 300, "a\0b", "a\nb"])
def test_session_names_that_can_not_be_are_refused(store: Store, key: str) -> None:
    with pytest.raises(NameRefused):
        Client(store, x_session_id=key).post([user("hi")])
    assert store.sessions.all() == []


def test_an_unknown_turn_type_is_refused(store: Store) -> None:
    with pytest.raises(NameRefused, match="main"):
        Client(store, x_turn_type="sidee").post([user("hi")])
