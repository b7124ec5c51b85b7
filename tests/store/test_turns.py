"""Turns are kept whole, exactly as sampled, in linear space, and move only along their states."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from clawd.errors import StoreError, TransitionRefused
from clawd.store.records import Response, Vote
from tests.store.world import World


def test_a_turn_comes_back_exactly_as_it_went_in(world: World) -> None:
    tools = [{"type": "function", "function": {"name": "read"}}]
    system = {"role": "system", "content": "You are terse. " * 40, "name": "boss"}
    messages = [system, {"role": "user", "content": [{"type": "text", "text": "héllo \ud83d"}]}]
    turn_id = world.begin(world.session(), messages=messages, prompt=(5, 49151, 0), tools=tools)
    logprobs = (-0.125, float(np.float32(-3.7)))
    world.store.turns.finish(
        turn_id, Response((9, 2), logprobs, "ok", "stop", "c", cached_tokens=2, first_token_at=4.5)
    )

    turn = world.store.turns.get(turn_id)

    assert turn.prompt_ids == [5, 49151, 0]
    assert turn.messages == messages
    assert turn.tools == tools
    assert (turn.response_ids, turn.logprobs) == ([9, 2], list(logprobs))
    assert (turn.state, turn.finish_reason, turn.first_token_at) == ("waiting", "stop", 4.5)
    assert world.store.verify() == []


def test_a_long_session_grows_linearly(world: World) -> None:
    session = world.session()
    prompt: tuple[int, ...] = ()
    messages: list[dict] = []
    turns = 40
    for number in range(turns):
        messages = [*messages, {"role": "user", "content": f"question {number}"}]
        prompt = (*prompt, *range(100))
        turn_id = world.begin(session, prompt=prompt, messages=messages, request_hash=str(number))
        world.answer(turn_id, ids=(7, 8))
        prompt = (*prompt, 7, 8)
        messages = [*messages, {"role": "assistant", "content": "hi"}]

    rows = world.store._connection.rows("SELECT length(prompt_rest) AS ids, length(messages_rest) AS text FROM turns")
    assert max(row["ids"] for row in rows) == 4 * 100
    assert max(row["text"] for row in rows) < 200
    last = world.store.turns.get(turn_id)
    assert last.prompt_ids == list(prompt[:-2])
    assert last.messages == messages[:-1]


def test_system_prompts_and_tools_are_stored_once(world: World) -> None:
    messages = [{"role": "system", "content": "x" * 5000}, {"role": "user", "content": "a"}]
    for number in range(3):
        world.begin(world.session(), messages=messages, tools=[{"name": "t" * 300}], request_hash=str(number))
    assert world.store._connection.rows("SELECT count(*) AS n FROM texts") == [{"n": 2}]


def test_a_prompt_that_leaves_the_earlier_one_shares_only_the_common_part(world: World) -> None:
    session = world.session()
    world.turn(session, prompt=(1, 2, 3, 4))
    turn_id = world.begin(session, prompt=(1, 2, 9), request_hash="other")
    assert world.store.turns.get(turn_id).prompt_ids == [1, 2, 9]


@pytest.mark.parametrize(("ids", "logprobs"), [((1, 2), (-0.1,)), ((1,), (-0.1, -0.2)), ((), (-0.1,))])
def test_unequal_lengths_are_refused_and_nothing_is_written(
    world: World, ids: tuple[int, ...], logprobs: tuple[float, ...]
) -> None:
    turn_id = world.begin(world.session())
    with pytest.raises(StoreError, match="log-probabilities"):
        world.store.turns.finish(turn_id, Response(ids, logprobs, "", "stop", None))
    assert world.store.turns.get(turn_id).state == "recorded"


def test_a_side_turn_is_stored_and_never_trained(world: World) -> None:
    turn_id = world.turn(kind="side")
    turn = world.store.turns.get(turn_id)
    assert (turn.state, turn.reason) == ("discarded", "side turn")
    assert not world.store.turns.give_next_state(turn_id, turn_id, [{"role": "user", "content": "x"}])
    assert world.store.signals.feedback(turn_id, Vote("feedback", 1, "feedback")) == "none"


def test_a_turn_gets_one_next_state(world: World) -> None:
    turn_id = world.turn()
    assert world.store.turns.give_next_state(turn_id, turn_id, [{"role": "user", "content": "first"}])
    assert not world.store.turns.give_next_state(turn_id, turn_id, [{"role": "user", "content": "second"}])
    assert world.store.turns.get(turn_id).next_state == [{"role": "user", "content": "first"}]


def test_closing_a_session_discards_its_waiting_turn_and_a_late_continuation_revives_it(world: World) -> None:
    session = world.session("k")
    turn_id = world.turn(session)
    world.store.sessions.close(session.id, "done")
    assert world.store.turns.get(turn_id).reason == "no next state"
    assert world.store.turns.give_next_state(turn_id, turn_id, [{"role": "user", "content": "still here"}])
    assert world.store.turns.get(turn_id).state == "judging"


def test_a_retried_answer_is_discarded_when_the_conversation_goes_on_from_the_other(world: World) -> None:
    session = world.session()
    first, second = world.turn(session), world.turn(session)
    world.store.turns.supersede(session.id, "r", second)
    assert world.store.turns.get(first).reason == "retried"
    assert world.store.turns.give_next_state(first, second, [{"role": "user", "content": "go on"}])
    assert world.store.turns.get(first).state == "judging"
    assert world.store.turns.get(second).reason == "retried"


def test_tools_and_messages_keep_the_order_of_their_keys(world: World) -> None:
    tools = [{"type": "function", "function": {"name": "b", "description": "a"}}]
    messages = [{"role": "assistant", "tool_calls": [{"type": "f", "id": "x", "function": {"name": "b"}}]}]
    turn = world.store.turns.get(world.begin(world.session(), messages=messages, tools=tools))
    assert repr((turn.tools, turn.messages)) == repr((tools, messages))


def test_aborted_turns_keep_what_they_had_and_cannot_be_revived(world: World) -> None:
    turn_id = world.begin(world.session())
    world.store.turns.abort(turn_id, Response((7,), (-1.0,), "h", "cancelled", None), "aborted")
    turn = world.store.turns.get(turn_id)
    assert (turn.state, turn.reason, turn.response_ids) == ("discarded", "aborted", [7])
    assert not world.store.turns.give_next_state(turn_id, turn_id, [{"role": "user", "content": "x"}])


def test_turns_of_a_dead_process_are_aborted_at_start(world: World) -> None:
    turn_id = world.begin(world.session())
    assert world.store.turns.discard_interrupted() == 1
    assert world.store.turns.get(turn_id).reason == "aborted"
    assert world.store.verify() == []


def test_no_statement_can_skip_a_state(world: World) -> None:
    turn_id = world.begin(world.session())
    with pytest.raises(TransitionRefused):
        world.store._connection.change("UPDATE turns SET state = 'sampled' WHERE id = ?", (turn_id,))
    with pytest.raises(TransitionRefused):
        world.store.signals.settle(turn_id, [Vote("rules", 1, "thanks")], 1)
    assert world.store.signals.votes(turn_id) == []


def test_idle_sessions_are_closed_but_not_running_ones(world: World) -> None:
    idle, busy = world.session(), world.session()
    world.turn(idle)
    world.begin(busy)
    world.store._connection.change("UPDATE sessions SET last_seen_at = 0")
    assert world.store.sessions.close_idle(60) == 1
    assert world.store.turns.counts() == {"discarded: no next state": 1, "recorded": 1}


def test_the_longest_known_conversation_is_continued_and_only_by_its_user(world: World) -> None:
    other, _ = world.store.people.add("other")
    session = world.session()
    first = world.begin(session)
    world.answer(first, conversation_hash="h1")
    second = world.begin(session, request_hash="r2")
    world.answer(second, conversation_hash="h3")
    found = world.store.turns.continued_by(world.user.id, ["h0", "h1", "h2", "h3"])
    assert found is not None and found.id == second
    assert world.store.turns.continued_by(world.user.id, ["h0"]) is None
    assert world.store.turns.continued_by(other.id, ["h1", "h3"]) is None


def test_thousands_of_idle_sessions_are_closed_in_bounded_memory(world: World) -> None:
    sessions = [world.session() for _ in range(2000)]
    turns = [world.turn(session, request_hash=str(n)) for n, session in enumerate(sessions)]
    time.sleep(0.01)
    tracemalloc.start()
    assert world.store.sessions.close_idle(0.005) == 2000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert world.store.turns.counts() == {"discarded: no next state": 2000}
    assert world.store.sessions.close_idle(0.005) == 0
    assert world.store.turns.get(turns[-1]).reason == "no next state"
    assert world.store.verify() == []


def test_a_session_begun_under_a_name_takes_it_over(world: World) -> None:
    user_id, sessions = world.user.id, world.store.sessions
    first = sessions.begin(user_id, "k", "prompt_cache_key")
    assert sessions.begin(user_id, "k", "prompt_cache_key") == first
    world.turn(first)
    second = sessions.begin(user_id, "k", "prompt_cache_key")
    assert second.id != first.id
    assert sessions.with_key(user_id, "k") == second
    assert sessions.get(first.id).key is None
    assert sessions.named_anew(sessions.get(first.id), "k").key is None
    assert sessions.named_anew(sessions.get(first.id), "free").key == "free"


def test_generations_of_a_name_are_found_and_neighbours_are_not(world: World) -> None:
    user_id, sessions = world.user.id, world.store.sessions
    for key in ("id:2", "id2", "idx:1", "i"):
        sessions.open(user_id, key, "affinity header")
    assert sessions.newest_of_id(user_id, "id").key == "id:2"
    assert sessions.newest_of_id(user_id, "none") is None


def test_scores_say_why_a_turn_has_none(world: World) -> None:
    adapter = world.user.adapter.id
    world.sample(reward=1)
    world.sample(reward=None, hint="Be brief.")
    world.turn()
    world.begin(world.session(), request_hash="running")
    dismissed = world.turn(request_hash="d")
    world.store.turns.give_next_state(dismissed, dismissed, [{"role": "user", "content": "next"}])
    world.store.signals.dismiss(dismissed, [Vote("rules", 0, "no rule applies")], "no signal")
    idle = world.session()
    world.turn(idle, request_hash="i")
    world.store.sessions.close(idle.id, "idle")
    assert world.store.turns.scores(adapter) == (
        2,
        {"a hint and no score": 1, "being answered": 1, "no next state": 1, "no next state yet": 1},
    )
