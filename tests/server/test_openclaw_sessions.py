"""Cases S1 b–d, S2, S3, S4 as a stock OpenClaw and other clients make them. Real store, real `place`, no model.

The requests are made by hand in the shape that OpenClaw 2026.9.6 was seen to send; of its texts only the marks.
"""

from __future__ import annotations

import pytest

from clawd.openclaw_text import BEGIN_CONTEXT, END_CONTEXT
from clawd.server.sessions.conversation import conversation_hashes
from clawd.store import Store
from clawd.store.records import Message
from tests.server.posting import Client, assistant, user

SESSION = "0b6ed7a6-6b54-4f6c-9d35-0d8c1a2b3c4d"
SYSTEM = {"role": "system", "content": "<!-- openclaw:attempt:STABLE -->\nYou are the person's assistant."}
RUNTIME = f"\n\nRuntime: agent=main | session=agent:main:main | sessionId={SESSION} | host=box | channel=webchat"
CONTEXT = user(f"{BEGIN_CONTEXT}\nrunning: nothing\n{END_CONTEXT}")
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("exec", "read", "write")]
HEARTBEAT = "Follow the heartbeat monitor.\nCurrent time: Sunday"
SUMMARY = "The conversation history before this point was compacted into a summary:\n<summary>talk of cats</summary>"


def at(minute: int, text: str) -> Message:
    return user(f"[Sun 2026-11-29 15:{minute:02} UTC] {text}")


def call(name: str, arguments: str, call_id: str = "call_1") -> dict:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def affinity(generation: str = ":1") -> dict[str, str]:
    return dict.fromkeys(("session_id", "x-client-request-id", "x-session-affinity"), f"{SESSION}{generation}")


class OpenClaw(Client):
    """Keeps a history as OpenClaw does, and adds what is only there for the moment."""

    def __init__(self, store: Store, **headers: str) -> None:
        super().__init__(store, **headers)
        self.history: list[Message] = []

    def say(self, message: Message, answer: str | None = "fine", **more: object):
        posted = self.post([SYSTEM, *self.history, message, CONTEXT], answer, tools=TOOLS, **more)
        self.history = [*self.history, message]
        if answer:
            self.history.append(assistant(answer))
        return posted


@pytest.fixture
def claw(store: Store) -> OpenClaw:
    client = OpenClaw(store)
    client.headers = affinity()
    return client


def stored(client: Client, turn_id: str):
    return client.store.turns.get(turn_id)


# -- S1: which session


@pytest.mark.parametrize(
    ("headers", "cache_key", "ending", "evidence"),
    [
        ({"x-session-id": "s"}, None, "", "header"),
        ({}, "s", "", "prompt_cache_key"),
        ({}, f"{SESSION}:1", "", "prompt_cache_key"),
        ({"session_id": "s"}, None, "", "affinity header"),
        ({"x-session-affinity": "s"}, None, "", "affinity header"),
        (affinity(), f"{SESSION}:1", RUNTIME, "affinity header"),
        ({}, None, RUNTIME, "runtime line"),
        ({}, None, "\nRuntime: agent=main | session=agent:main:main | host=box", "runtime line"),
        ({}, None, "", "conversation"),
        ({"x-client-request-id": "one-per-request"}, None, "", "conversation"),
    ],
)
def test_three_turns_are_one_session_whatever_names_it(
    store: Store, headers: dict[str, str], cache_key: str | None, ending: str, evidence: str
) -> None:
    client = OpenClaw(store)
    client.headers, client.cache_key = headers, cache_key
    turns = [client.say(at(1, "one" + ending)), client.say(at(2, "two")), client.say(at(3, "three"))]
    assert len({placement.session.id for placement, _ in turns}) == 1
    assert store.sessions.counts_by_evidence() == {evidence: 1}
    assert [placement.kind for placement, _ in turns] == ["main"] * 3
    assert [stored(client, turn).next_state for _, turn in turns] == [[at(2, "two")], [at(3, "three")], None]


def test_a_request_number_of_its_own_names_no_session(store: Store) -> None:
    client = OpenClaw(store)
    for number in range(3):
        client.headers = {"x-client-request-id": f"00000000-0000-4000-8000-00000000000{number}"}
        client.say(at(number, f"turn {number}"))
    assert store.sessions.counts_by_evidence() == {"conversation": 1}


def test_the_better_evidence_wins(store: Store) -> None:
    client = OpenClaw(store)
    client.headers = {"x-session-id": "told", **affinity()}
    client.cache_key = "bucket"
    placement, _ = client.say(at(1, "hi" + RUNTIME))
    assert (placement.session.key, placement.session.evidence) == ("told", "header")


@pytest.mark.parametrize("weaker", [{"session_id": "s:1"}, {"x-session-affinity": "s:2"}])
def test_weaker_evidence_does_not_rename_what_a_header_named(store: Store, weaker: dict[str, str]) -> None:
    client, history = Client(store), [user("hello")]
    sessions = []
    for headers in ({"x-session-id": "s:0"}, weaker, {"x-session-id": "s:0"}):
        client.headers = headers
        sessions.append(client.post(history, "fine")[0].session.id)
        history = [*history, assistant("fine"), user("and then?")]
    assert len(set(sessions)) == 1


def test_names_that_can_not_be_are_passed_over(store: Store) -> None:
    client = OpenClaw(store)
    client.headers, client.cache_key = {"session_id": "a\0b"}, "x" * 300
    placement, _ = client.say(at(1, "hi"))
    assert placement.session.evidence == "conversation"


def test_one_cache_key_for_all_conversations_mixes_none(store: Store) -> None:
    ada, bob = OpenClaw(store), OpenClaw(store)
    for client in (ada, bob):
        client.cache_key = "my-application"
    first = ada.say(user("about cats"))
    other = bob.say(user("about dogs"))
    again = ada.say(user("more cats"))
    there = bob.say(user("more dogs"))
    assert first[0].session.id == again[0].session.id
    assert other[0].session.id == there[0].session.id
    assert first[0].session.id != other[0].session.id
    assert stored(ada, first[1]).next_state == [user("more cats")]
    assert stored(bob, other[1]).next_state == [user("more dogs")]


def test_numbers_behind_a_name_may_be_other_conversations(store: Store) -> None:
    one, two = OpenClaw(store), OpenClaw(store)
    one.headers, two.headers = {"session_id": "chat:41"}, {"session_id": "chat:42"}
    first, first_id = one.say(user("about cats"))
    second, _ = two.say(user("about dogs"))
    assert first.session.id != second.session.id
    assert stored(one, first_id).next_state is None


def test_compaction_is_the_same_session(claw: OpenClaw) -> None:
    first, _ = claw.say(at(1, "one"))
    _, last_id = claw.say(at(2, "two"), "second answer")
    claw.headers = affinity("")
    system = {"role": "system", "content": "You are a context summarization assistant. Sum it up."}
    side, side_id = claw.post([system, user("<conversation>\nall of it\n</conversation>")], "talk of cats")
    assert (side.kind, side.kind_evidence, side.session.id) == ("side", "compaction", first.session.id)
    claw.headers = affinity(":2")
    claw.history = [user(SUMMARY)]
    after, after_id = claw.say(at(3, "no, I meant dogs"))
    assert after.session.id == first.session.id
    assert stored(claw, last_id).next_state == [at(3, "no, I meant dogs")]
    later, _ = claw.say(at(4, "thanks"))
    assert later.session.id == first.session.id
    assert stored(claw, after_id).next_state == [at(4, "thanks")]
    assert stored(claw, side_id).reason == "side turn"


@pytest.mark.parametrize("headers", [affinity(":2"), {}])
def test_compaction_in_the_middle_of_a_turn_leaves_the_turn_the_persons(
    claw: OpenClaw, headers: dict[str, str]
) -> None:
    first, _ = claw.say(at(1, "one"))
    _, last_id = claw.say(at(2, "two"), "second answer")
    claw.headers = headers
    summary = user(SUMMARY + RUNTIME)  # OpenClaw puts the line into whatever comes first
    resumed = at(3, "Continue the current task from the existing transcript, preserving completed work.")
    request = [SYSTEM, summary, at(3, "no, I meant dogs"), resumed]
    after, after_id = claw.post(request, "woof", tools=TOOLS)
    assert (after.kind, after.session.id) == ("main", first.session.id)
    assert stored(claw, last_id).next_state == [at(3, "no, I meant dogs")]
    claw.history = [summary, at(3, "no, I meant dogs"), assistant("woof")]
    claw.say(at(4, "thanks"))
    assert stored(claw, after_id).next_state == [at(4, "thanks")]


@pytest.mark.parametrize("generation", [":2", ":1"])
def test_a_reset_begins_another_session(claw: OpenClaw, generation: str) -> None:
    first, _ = claw.say(at(1, "one"))
    _, last_id = claw.say(at(2, "two"))
    claw.headers, claw.history = affinity(generation), []
    fresh, fresh_id = claw.say(at(3, "something else altogether"))
    assert fresh.session.id != first.session.id
    assert fresh.previous is None
    assert stored(claw, last_id).next_state is None
    going_on, _ = claw.say(at(4, "more of it"))
    assert going_on.session.id == fresh.session.id
    assert stored(claw, fresh_id).next_state == [at(4, "more of it")]


def test_a_conversation_goes_on_after_a_night(claw: OpenClaw) -> None:
    first, evening = claw.say(at(1, "good night"))
    claw.store.sessions.close(first.session.id, "idle")
    assert stored(claw, evening).reason == "no next state"
    morning, _ = claw.say(at(2, "that was wrong, by the way"))
    assert morning.session.id == first.session.id
    assert stored(claw, evening).next_state == [at(2, "that was wrong, by the way")]


def test_a_closed_session_whose_name_is_taken_comes_back_without_it(claw: OpenClaw) -> None:
    first, _ = claw.say(at(1, "old talk"))
    old = list(claw.history)
    claw.store.sessions.close(first.session.id, "idle")
    claw.history = []
    other, _ = claw.say(at(2, "new talk"))
    claw.history = old
    back, _ = claw.say(at(3, "more of the old"))
    assert back.session.id == first.session.id != other.session.id
    assert claw.store.sessions.get(back.session.id).key is None


@pytest.mark.parametrize("names", [True, False])
def test_a_subagent_has_its_own_session(store: Store, names: bool) -> None:
    parent, child = OpenClaw(store), OpenClaw(store)
    if names:
        parent.headers, child.headers = affinity(), {"x-session-affinity": "11111111-2222-4333-8444-555555555555:1"}
    main, main_id = parent.say(at(1, "look it up" + ("" if names else RUNTIME)), "a sub-agent is on it")
    child.history = list(parent.history)
    task, task_id = child.say(user("[Subagent Context] You work for somebody.\n[Subagent Task] look it up"), "found")
    assert task.session.id != main.session.id
    assert task.kind == "main"
    assert stored(parent, main_id).next_state is None
    more, _ = child.say({"role": "tool", "tool_call_id": "c", "content": "a.txt"})
    assert more.session.id == task.session.id
    assert stored(child, task_id).next_state == [{"role": "tool", "tool_call_id": "c", "content": "a.txt"}]
    reply, _ = parent.say(at(2, "hurry"))
    assert reply.session.id == main.session.id
    assert stored(parent, main_id).next_state == [at(2, "hurry")]


# -- turn kinds, S2


@pytest.mark.parametrize(
    ("messages", "tools", "rule"),
    [
        ([SYSTEM, user(HEARTBEAT)], TOOLS, "heartbeat"),
        ([SYSTEM, user(HEARTBEAT), assistant("x"), {"role": "tool", "content": "y"}, CONTEXT], TOOLS, "heartbeat"),
        ([SYSTEM, user("Look after my inbox.\nCurrent time: Sunday")], TOOLS, "heartbeat"),
        ([SYSTEM, user("[OpenClaw heartbeat poll]"), CONTEXT], TOOLS, "heartbeat"),
        ([user("Anything? If not, reply HEARTBEAT_OK.")], None, "heartbeat"),
        ([SYSTEM, user("[OpenClaw exec completion]\ndone")], TOOLS, "wake"),
        ([SYSTEM, at(1, "Pre-compaction memory flush. Save what matters.")], TOOLS, "memory flush"),
        ([{"role": "system", "content": "You are a context summarization assistant."}, user("x")], None, "compaction"),
        ([{"role": "system", "content": "Generate a concise session title (3 words)"}, user("x")], None, "title"),
        ([SYSTEM, at(1, "A background task completed. Use it.")], TOOLS, "sub-agent done"),
        (
            [SYSTEM, at(1, "The previous attempt did not produce a user-visible answer. Go on.")],
            TOOLS,
            "retry of an empty answer",
        ),
        ([user("### Task:\nName this chat.\n<chat_history>\nUSER: hi\n</chat_history>")], None, "chat task"),
    ],
)
def test_side_turns_are_known_by_their_request(
    store: Store, messages: list[Message], tools: list[dict] | None, rule: str
) -> None:
    placement, turn_id = Client(store).post(messages, tools=tools)
    assert (placement.kind, placement.kind_evidence) == ("side", rule)
    assert store.turns.get(turn_id).reason == "side turn"


@pytest.mark.parametrize(
    "messages",
    [
        [user("hi")],
        [SYSTEM, at(1, "Follow the heartbeat of my patient, please.\nCurrent time: noon")],
        [SYSTEM, at(1, "what does HEARTBEAT_OK mean?")],
        [user("Why does it say 'A background task completed.'?")],
        [{"role": "system", "content": "You write titles."}, user("Generate a concise session title")],
        [user("Current time: noon. What should I eat?")],
        [SYSTEM, at(1, "hi"), CONTEXT],
        [SYSTEM, at(1, "hi"), assistant("A background task completed."), at(2, "which?"), CONTEXT],
    ],
)
def test_a_person_is_taken_for_a_person(store: Store, messages: list[Message]) -> None:
    placement, _ = Client(store).post(messages)
    assert (placement.kind, placement.kind_evidence) == ("main", "default")


def test_a_model_run_is_known_only_if_openclaw_says_who_it_is(store: Store) -> None:
    assert Client(store).post([user("one question")])[0].kind == "main"
    known, _ = Client(store, x_clawd_client="openclaw").post([user("another question")])
    assert (known.kind, known.kind_evidence) == ("side", "model run")
    system = {"role": "system", "content": "Current model identity: clawd/clawd. If asked what model you are, say so."}
    through_gateway, _ = Client(store, x_clawd_client="openclaw").post([system, user("a question")])
    assert (through_gateway.kind, through_gateway.kind_evidence) == ("side", "model run")
    longer = {"role": "system", "content": f"{system['content']}\nYou are the person's assistant."}
    assert Client(store, x_clawd_client="openclaw").post([longer, user("a question")])[0].kind == "main"
    told, _ = Client(store, x_clawd_client="openclaw", x_turn_type="main").post([user("a third question")])
    assert (told.kind, told.kind_evidence) == ("main", "header")


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("answer", ["NO_REPLY", "HEARTBEAT_OK", "Your train leaves in an hour."])
def test_a_heartbeat_stands_between_an_answer_and_the_reply_to_it(store: Store, names: bool, answer: str) -> None:
    claw = OpenClaw(store)
    claw.headers = affinity() if names else {}
    first, main_id = claw.say(at(1, "when does it leave?"), "at nine")
    before = list(claw.history)
    poll, poll_id = claw.say(user(HEARTBEAT), answer)
    claw.history = [*before, user("[OpenClaw heartbeat poll]")]
    if answer.startswith("Your"):
        claw.history.append(assistant(answer))
    human, human_id = claw.say(at(40, "no, at ten"))
    assert (poll.kind, poll.session.id) == ("side", first.session.id)
    assert human.session.id == first.session.id
    assert stored(claw, main_id).next_state == [at(40, "no, at ten")]
    assert stored(claw, poll_id).next_state is None
    claw.say(at(41, "thanks"))
    assert stored(claw, human_id).next_state == [at(41, "thanks")]


def test_the_reply_to_a_background_result_says_nothing_about_the_answer_before(claw: OpenClaw) -> None:
    _, main_id = claw.say(at(1, "look it up"), "a sub-agent is on it")
    done, _ = claw.say(at(2, "A background task completed. Use it."), "It is 42.")
    human, human_id = claw.say(at(3, "that's wrong"))
    assert done.kind == "side"
    assert human.previous is not None and human.previous.id == main_id
    assert stored(claw, main_id).next_state is None
    claw.say(at(4, "thanks"))
    assert stored(claw, human_id).next_state == [at(4, "thanks")]


def test_a_retried_empty_answer_is_no_reply_and_its_answer_is_judged_alone(claw: OpenClaw) -> None:
    _, empty_id = claw.say(at(1, "hello?"), "")
    retry, _ = claw.say(at(1, "The previous attempt did not produce a user-visible answer."), "Hello!")
    assert retry.kind == "side"
    assert stored(claw, empty_id).next_state is None
    claw.say(at(2, "there you are, thanks"))
    assert stored(claw, empty_id).next_state is None


# -- S4, S3 and what happens to history


def test_machine_context_is_nobodys_reply(claw: OpenClaw) -> None:
    _, first = claw.say(at(1, "hi"), "hello")
    again, _ = claw.post([SYSTEM, *claw.history, CONTEXT], tools=TOOLS)
    assert again.previous is not None and again.previous.id == first
    assert stored(claw, first).next_state is None
    claw.say(at(2, f"no\n{BEGIN_CONTEXT}\nx\n{END_CONTEXT}"))
    assert stored(claw, first).next_state == [at(2, "no")]


def test_context_is_stored_as_it_was_served(claw: OpenClaw) -> None:
    _, first = claw.say(at(1, "hi"))
    assert stored(claw, first).messages == [SYSTEM, at(1, "hi"), CONTEXT]


def test_a_tool_loop_is_one_session_though_calls_are_rewritten(claw: OpenClaw) -> None:
    asked, answer = at(1, "list"), call("exec", '{"command": "ls", "timeout": 5}', "call_2")
    first, first_id = claw.post([SYSTEM, asked, CONTEXT], "", calls=[answer], tools=TOOLS)
    rewritten = {**call("exec", '{"timeout":5,"command":"ls"}', "call2"), "index": 0}
    said_call = {"role": "assistant", "content": None, "tool_calls": [rewritten]}
    result = {"role": "tool", "tool_call_id": "call2", "content": "a.txt"}
    second, second_id = claw.post([SYSTEM, asked, said_call, result, CONTEXT], "one file", tools=TOOLS)
    assert second.session.id == first.session.id
    assert stored(claw, first_id).next_state == [result]
    claw.history = [asked, said_call, result, assistant("one file")]
    claw.say(at(2, "thanks"))
    assert stored(claw, second_id).next_state == [at(2, "thanks")]


def test_an_identical_request_after_a_timeout_is_one_turn(claw: OpenClaw) -> None:
    request = [SYSTEM, at(1, "a long question"), CONTEXT]
    cut, cut_id = claw.post(request, None, tools=TOOLS)
    again, again_id = claw.post(request, tools=TOOLS)
    assert cut.session.id == again.session.id
    assert claw.store.turns.counts() == {"discarded: aborted": 1, "waiting": 1}
    claw.history = [at(1, "a long question"), assistant("fine")]
    claw.say(at(2, "thanks"))
    assert stored(claw, again_id).next_state == [at(2, "thanks")]
    assert stored(claw, cut_id).state == "discarded"


@pytest.mark.parametrize("cut", [None, "", "NO_REPLY", "<think>only thought</think>"])
@pytest.mark.parametrize("names", [True, False])
def test_an_answer_that_vanishes_does_not_cut_the_conversation(store: Store, cut: str | None, names: bool) -> None:
    claw = OpenClaw(store)
    claw.headers = affinity() if names else {}
    first, _ = claw.say(at(1, "one"), cut)
    claw.history = [at(1, "one")]
    second, second_id = claw.say(at(2, "two"), "answer")
    claw.history = [user("[Sun 2026-11-29 15:01 UTC] one\n\n[Sun 2026-11-29 15:02 UTC] two"), assistant("answer")]
    third, _ = claw.say(at(3, "three"))
    assert first.session.id == second.session.id == third.session.id
    assert stored(claw, second_id).next_state == [at(3, "three")]


@pytest.mark.parametrize(
    ("sent", "answer", "history"),
    [
        ([user("hi")], "[[reply_to_current]] Hello!\n\n", [user("hi"), assistant("Hello!")]),
        ([user("hi")], "<think>greets</think>\nHello!", [user("hi"), assistant("Hello!")]),
        ([user("hi\n\n"), CONTEXT], "Hello!", [user("hi"), assistant("Hello!")]),
        ([user("hi" + RUNTIME)], "Hello!", [user("hi" + RUNTIME.replace("webchat", "telegram")), assistant("Hello!")]),
        ([user("one"), user("two")], "Hello!", [user("one\n\ntwo"), assistant("Hello!")]),
        ([at(1, "hi")], "Hello!", [user("hi"), assistant("Hello!")]),
        (
            [user("hi"), {"role": "assistant", "content": "", "tool_calls": [call("x", "")]}],
            "Hello!",
            [
                user("hi"),
                {"role": "assistant", "content": None, "tool_calls": [call("x", "{}", "c")]},
                assistant("Hello!"),
            ],
        ),
    ],
)
def test_rewritten_history_is_recognised(
    store: Store, sent: list[Message], answer: str, history: list[Message]
) -> None:
    client = Client(store)
    first, first_id = client.post([SYSTEM, *sent], answer)
    second, _ = client.post([{"role": "system", "content": "Monday"}, *history, user("and you?")])
    assert second.session.id == first.session.id
    assert store.turns.get(first_id).next_state == [user("and you?")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([user("a"), assistant("b")], [user("a"), user("b")]),
        ([user("a b")], [user("ab")]),
        (
            [{"role": "assistant", "content": "", "tool_calls": [call("x", '{"a": 1}')]}],
            [{"role": "assistant", "content": "", "tool_calls": [call("x", '{"a": 2}')]}],
        ),
        ([user("a"), {"role": "tool", "content": "b"}], [user("a"), {"role": "tool", "content": "c"}]),
    ],
)
def test_different_conversations_have_different_hashes(one: list[Message], other: list[Message]) -> None:
    assert conversation_hashes(one)[-1] != conversation_hashes(other)[-1]
