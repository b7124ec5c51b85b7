"""`POST /v1/messages` as the anthropic SDK uses it. Real server and store; a script says what the model would not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import anthropic
import httpx
import pytest
from anthropic import Anthropic

from clawd.config import ModelSettings, Settings
from tests.server.live import Live
from tests.server.scripted import ScriptedLive, scripted_server
from tests.server.test_tools import TEMPLATE
from tests.tiny_gguf import write_tiny_model

HI = {"role": "user", "content": "Name three colours."}
GREEDY = {"temperature": 0}  # the SDK knows no such parameter any more, the API does
WEATHER = {
    "name": "get_weather",
    "description": "Says what the weather is like.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
QUESTION = [{"role": "user", "content": "How is the weather in Oslo and in Rome?"}]
TWO_CALLS = (
    "I look it up.\n"
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
)
BROKEN_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": Oslo}}\n</tool_call>'


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedLive]:
    with scripted_server(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="module")
def live(scripted: ScriptedLive) -> Live:
    return scripted.live


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[Anthropic]:
    with live.anthropic() as opened:
        yield opened


def events_of(response: httpx.Response) -> list[dict]:
    """The events of a stream, whose names must be their types."""
    events = []
    for block in response.text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def test_an_answer_and_its_turn(client: Anthropic, live: Live) -> None:
    message = client.messages.create(model="clawd", max_tokens=12, extra_body=GREEDY, messages=[HI], system="Be brief.")
    assert (message.type, message.role, message.model, message.stop_reason) == (
        "message",
        "assistant",
        "clawd",
        "max_tokens",
    )
    turn = live.turn(message.id)
    (block,) = message.content
    assert block.type == "text" and block.text == turn.response_text
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == len(turn.prompt_ids)
    assert usage.output_tokens == len(turn.response_ids) == 12
    again = client.messages.create(model="clawd", max_tokens=12, extra_body=GREEDY, messages=[HI], system="Be brief.")
    assert again.usage.cache_read_input_tokens > 0
    assert again.usage.input_tokens + again.usage.cache_read_input_tokens == len(turn.prompt_ids)


def test_the_prompt_is_the_one_that_chat_gives(client: Anthropic, live: Live) -> None:
    messages = [*QUESTION, {"role": "assistant", "content": "Fine."}, {"role": "user", "content": "Sure?"}]
    ours = client.messages.create(model="clawd", max_tokens=1, messages=messages, system="Be brief.", tools=[WEATHER])
    function = {"name": WEATHER["name"], "description": WEATHER["description"], "parameters": WEATHER["input_schema"]}
    theirs = live.chat(
        [{"role": "system", "content": "Be brief."}, *messages],
        tools=[{"type": "function", "function": function}],
        max_tokens=1,
    ).json()
    assert live.turn(ours.id).prompt_ids == live.turn(theirs["id"]).prompt_ids
    assert live.turn(ours.id).session_id == live.turn(theirs["id"]).session_id


def test_tokens_are_counted_exactly_and_nothing_is_recorded(client: Anthropic, live: Live) -> None:
    ask = {"model": "clawd", "messages": [HI], "system": "Be brief.", "tools": [WEATHER]}
    turns = live.store.turns.counts()
    counted = client.messages.count_tokens(**ask).input_tokens
    assert live.store.turns.counts() == turns
    message = client.messages.create(**ask, max_tokens=1)
    assert counted == len(live.turn(message.id).prompt_ids)
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(**{**ask, "model": "claude-x"})


def test_a_stream_has_the_events_in_order_and_adds_up_to_the_whole(client: Anthropic, live: Live) -> None:
    body = {"model": "clawd", "max_tokens": 9, "temperature": 0, "messages": [HI]}
    events = events_of(live.http.post("/v1/messages", json={**body, "stream": True}))
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert events[0]["message"]["stop_reason"] is None
    with client.messages.stream(model="clawd", max_tokens=9, extra_body=GREEDY, messages=[HI]) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    whole = client.messages.create(model="clawd", max_tokens=9, extra_body=GREEDY, messages=[HI])
    assert len(texts) > 3 and "".join(texts) == whole.content[0].text == final.content[0].text
    assert (final.stop_reason, final.usage) == (whole.stop_reason, whole.usage)
    assert live.turn(final.id).response_ids == live.turn(whole.id).response_ids


def test_why_it_ended(scripted: ScriptedLive, client: Anthropic) -> None:
    ask = {"model": "clawd", "max_tokens": 100, "messages": [HI], "stop_sequences": ["never", "STOP"]}
    scripted.engine.say("red STOP green", "red STOP green", "red")
    whole = client.messages.create(**ask)
    assert (whole.stop_reason, whole.stop_sequence, whole.content[0].text) == ("stop_sequence", "STOP", "red ")
    with client.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence, final.content[0].text) == ("stop_sequence", "STOP", "red ")
    ended = client.messages.create(**ask)
    assert (ended.stop_reason, ended.stop_sequence) == ("end_turn", None)


def test_a_tool_loop_is_one_session_with_next_states(scripted: ScriptedLive, client: Anthropic) -> None:
    live = scripted.live
    scripted.engine.say(f"<think>hm</think>{TWO_CALLS}", "Rain in both.", "You are welcome.")
    history: list[dict] = [*QUESTION]
    ask = {"model": "clawd", "max_tokens": 500, "tools": [WEATHER], "system": "Be brief."}

    first = client.messages.create(**ask, messages=history)
    assert first.stop_reason == "tool_use"
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
    uses = [block for block in first.content if block.type == "tool_use"]
    assert [use.input for use in uses] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert len({use.id for use in uses}) == 2
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": "rain"} for use in uses]
    history += [first.to_param(), {"role": "user", "content": results}]

    with client.messages.stream(**ask, messages=history) as stream:
        second = stream.get_final_message()
    assert second.stop_reason == "end_turn"
    history += [second.to_param(), {"role": "user", "content": "Thank you!"}]
    third = client.messages.create(**ask, messages=history)

    turns = [live.turn(message.id) for message in (first, second, third)]
    assert len({turn.session_id for turn in turns}) == 1
    assert [turn.kind for turn in turns] == ["main"] * 3
    assert [turn.state for turn in turns] == ["judging", "judging", "waiting"]
    assert [message["content"] for message in turns[0].next_state] == ["rain", "rain"]
    assert [message["content"] for message in turns[1].next_state] == ["Thank you!"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_engine_is_the_sdks_own_error(scripted: ScriptedLive, client: Anthropic, stream: bool) -> None:
    scripted.engine.fail()
    with pytest.raises(anthropic.APIStatusError) as caught:
        reply = client.messages.create(model="clawd", max_tokens=9, messages=[HI], stream=stream)
        list(reply)
    assert caught.value.body["error"]["type"] == "api_error"
    assert scripted.live.settled()


def test_text_around_a_call_does_not_cut_the_session(scripted: ScriptedLive, client: Anthropic) -> None:
    scripted.engine.say(f"{TWO_CALLS}\nBoth asked.", "Fine.")
    ask = {"model": "clawd", "max_tokens": 500, "tools": [WEATHER]}
    question = [{"role": "user", "content": "Ask, and say so."}]
    first = client.messages.create(**ask, messages=question)
    assert [block.type for block in first.content] == ["text", "tool_use", "tool_use", "text"]
    uses = [block for block in first.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": "rain"} for use in uses]
    second = client.messages.create(**ask, messages=[*question, first.to_param(), {"role": "user", "content": results}])
    assert scripted.live.turn(first.id).session_id == scripted.live.turn(second.id).session_id


@pytest.mark.parametrize("stream", [False, True])
def test_a_malformed_input_reaches_the_client_as_an_object_and_the_session_goes_on(
    scripted: ScriptedLive, client: Anthropic, stream: bool
) -> None:
    scripted.engine.say(BROKEN_CALL, "Sorry.")
    ask = {"model": "clawd", "max_tokens": 500, "tools": [WEATHER]}
    question = [{"role": "user", "content": f"Weather, broken, {stream}?"}]
    if stream:
        with client.messages.stream(**ask, messages=question) as opened:
            first = opened.get_final_message()
    else:
        first = client.messages.create(**ask, messages=question)
    (use,) = first.content
    assert use.type == "tool_use" and list(use.input) == ["unreadable_arguments"]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "no such city", "is_error": True}
    second = client.messages.create(
        **ask, messages=[*question, first.to_param(), {"role": "user", "content": [result]}]
    )
    turns = [scripted.live.turn(message.id) for message in (first, second)]
    assert turns[0].session_id == turns[1].session_id
    assert turns[0].next_state[0]["content"] == "Error: no such city"
    prompt = scripted.live.services.vocabulary.text(turns[1].prompt_ids, special=True)
    assert BROKEN_CALL.replace("\n{", "\n{") in prompt.replace("</tool_call>", "</tool_call>")


def test_an_input_that_is_being_written_is_no_silence(scripted: ScriptedLive, live: Live) -> None:
    scripted.engine.say(TWO_CALLS.replace("Oslo", "Oslo, " * 40))
    body = {"model": "clawd", "max_tokens": 500, "tools": [WEATHER], "messages": QUESTION, "stream": True}
    kinds = [event["type"] for event in events_of(live.http.post("/v1/messages", json=body))]
    assert kinds.count("ping") >= 5
    scripted.engine.say(TWO_CALLS)
    body["tools"] = [{**WEATHER, "eager_input_streaming": True}]
    deltas = [event["delta"] for event in events_of(live.http.post("/v1/messages", json=body)) if "delta" in event]
    assert len([delta for delta in deltas if delta.get("partial_json")]) > 4


def test_one_tool_at_a_time_and_none(scripted: ScriptedLive, client: Anthropic) -> None:
    ask = {"model": "clawd", "max_tokens": 500, "messages": QUESTION, "tools": [WEATHER]}
    scripted.engine.say(TWO_CALLS, TWO_CALLS)
    one = client.messages.create(**ask, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert [block.type for block in one.content] == ["text", "tool_use"]
    none = client.messages.create(**ask, tool_choice={"type": "none"})
    assert [block.type for block in none.content] == ["text"]
    assert "get_weather" not in scripted.live.services.vocabulary.text(scripted.live.turn(none.id).prompt_ids)


def test_thinking_reaches_the_template(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("thinking")
    path = write_tiny_model(folder / "tiny.gguf", context=2048, template=TEMPLATE, control=("<think>", "</think>"))
    with (
        scripted_server(folder / "home", Settings(model=ModelSettings(path=path))) as server,
        server.live.anthropic() as client,
    ):
        server.engine.say("hm</think>\nFine.", "hm</think>\nFine.", "Fine.")
        ask = {"model": "clawd", "max_tokens": 100, "messages": [HI]}
        wanted = {**ask, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        with client.messages.stream(**wanted) as stream:
            streamed = stream.get_final_message()
        whole = client.messages.create(**wanted)
        for message in (streamed, whole):
            thinking, text = message.content
            assert (thinking.type, thinking.thinking, thinking.signature) == ("thinking", "hm", message.id)
            assert (text.type, text.text) == ("text", "Fine.")
        plain = client.messages.create(**ask)
        assert [block.type for block in plain.content] == ["text"]
        prompts = [
            server.live.services.vocabulary.text(server.live.turn(message.id).prompt_ids, special=True)
            for message in (whole, plain)
        ]
        assert [prompt.endswith("<think>\n") for prompt in prompts] == [True, False]


@pytest.mark.parametrize(
    ("change", "error", "kind"),
    [
        ({"model": "claude-sonnet-9"}, anthropic.NotFoundError, "not_found_error"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "invalid_request_error"),
        ({"extra_body": {"temperature": 1.5}}, anthropic.BadRequestError, "invalid_request_error"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]},
            anthropic.BadRequestError,
            "invalid_request_error",
        ),
        (
            {"messages": [HI, {"role": "assistant", "content": "Red,"}]},
            anthropic.BadRequestError,
            "invalid_request_error",
        ),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, anthropic.BadRequestError, "invalid_request_error"),
        (
            {"messages": [{"role": "user", "content": "word " * 9000}]},
            anthropic.BadRequestError,
            "invalid_request_error",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_the_sdks_own(
    client: Anthropic, change: dict, error: type[anthropic.APIStatusError], kind: str, stream: bool
) -> None:
    with pytest.raises(error) as caught:
        client.messages.create(**{"model": "clawd", "max_tokens": 1, "messages": [HI], **change}, stream=stream)
    body = caught.value.body
    assert isinstance(body, dict) and set(body) == {"type", "error"} and set(body["error"]) == {"type", "message"}
    assert (body["type"], body["error"]["type"]) == ("error", kind)


def test_an_overflow_is_worded_as_agents_know_it(client: Anthropic, live: Live) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: 9\d{3} tokens > \d+ maximum"):
        client.messages.create(model="clawd", max_tokens=1, messages=[{"role": "user", "content": "word " * 9000}])


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"model": "clawd"}'])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_bodies_that_are_no_request_are_told_so_in_the_same_shape(live: Live, path: str, body: bytes) -> None:
    reply = live.http.post(path, content=body, headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()["type"]) == (400, "error")
    assert live.http.get(path).json()["type"] == "error"


def test_a_foreign_page_is_refused_in_the_same_shape(live: Live) -> None:
    reply = live.http.post("/v1/messages", json={}, headers={"origin": "http://evil.example"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (403, "permission_error")


def test_unknown_fields_are_counted(live: Live) -> None:
    body = {"model": "clawd", "max_tokens": 1, "messages": [HI], "service_tier": "auto", "container": "x"}
    assert live.http.post("/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"}).status_code == 200
    assert {"service_tier", "container"} <= set(live.http.get("/clawd/v1/status").json()["ignored_fields"])


def test_feedback_names_the_message(client: Anthropic, live: Live) -> None:
    message = client.messages.create(model="clawd", max_tokens=2, messages=[{"role": "user", "content": "feedback?"}])
    reply = live.http.post("/clawd/v1/feedback", json={"response_id": message.id, "score": 1})
    assert reply.json()["applied"]


def test_a_client_that_leaves_ends_its_turn(live: Live) -> None:
    body = {"model": "clawd", "messages": [HI], "stream": True}
    with httpx.stream("POST", f"{live.url}/v1/messages", json={**body, "max_tokens": 4000}, timeout=60) as reply:
        start = next(line for line in reply.iter_lines() if line.startswith("data: "))
    assert live.settled()
    turn = live.turn(json.loads(start.removeprefix("data: "))["message"]["id"])
    assert (turn.state, turn.reason) == ("discarded", "aborted")


def test_a_key_is_taken_from_either_header(tmp_path_factory: pytest.TempPathFactory) -> None:
    with scripted_server(tmp_path_factory.mktemp("home")) as server:
        live = server.live
        ann, key = live.store.people.add("ann")
        ask = {"model": "clawd", "max_tokens": 1, "messages": [HI]}
        for given in ({"key": key}, {"key": None, "token": key}):
            with live.anthropic(**given) as client:
                turn = live.turn(client.messages.create(**ask).id)
                assert turn.user_id == ann.id
        with live.anthropic(key="wrong") as client, pytest.raises(anthropic.AuthenticationError) as caught:
            client.messages.create(**ask)
        assert caught.value.body["error"]["type"] == "authentication_error"


def test_conversations_at_the_same_time_stay_apart(live: Live) -> None:
    turns: dict[str, set[str]] = {}

    def talk(name: str) -> None:
        with live.anthropic() as client:
            history: list[dict] = [{"role": "user", "content": f"I am {name}."}]
            ids = []
            for _ in range(3):
                message = client.messages.create(model="clawd", max_tokens=4, messages=history)
                ids.append(message.id)
                history += [message.to_param(), {"role": "user", "content": "go on"}]
            turns[name] = {live.turn(each).session_id for each in ids}

    threads = [threading.Thread(target=talk, args=(name,)) for name in ("Ann", "Bob", "Cid")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(sessions) == 1 for sessions in turns.values())
    assert len(set.union(*turns.values())) == 3
