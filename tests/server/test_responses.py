"""`POST /v1/responses` as the openai SDK uses it. Real server and store; a script says what the model would not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.server.live import Live
from tests.server.scripted import ScriptedLive, scripted_server
from tests.server.test_messages import BROKEN_CALL, TWO_CALLS

EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
QUESTION = "How is the weather in Oslo and in Rome?"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Says what the weather is like.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedLive]:
    with scripted_server(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="module")
def live(scripted: ScriptedLive) -> Live:
    return scripted.live


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[OpenAI]:
    with live.openai() as opened:
        yield opened


def events_of(reply: httpx.Response) -> list[dict]:
    """The events of a stream, each as the SDK's types have it, numbered and named."""
    events = []
    for block in reply.text.strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        EVENT.validate_python(event)
        assert (name, event["sequence_number"]) == (f"event: {event['type']}", len(events))
        events.append(event)
    return events


def test_an_answer_and_its_turn(client: OpenAI, live: Live) -> None:
    ask = {"model": "clawd", "input": "Name three colours.", "instructions": "Be brief.", "temperature": 0}
    response = client.responses.create(**ask, max_output_tokens=12, store=True, metadata={"a": "b"})
    turn = live.turn(response.id)
    assert response.output_text == turn.response_text
    assert (response.status, response.store, response.metadata) == ("incomplete", False, {"a": "b"})
    assert response.incomplete_details is not None and response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"
    assert (response.temperature, response.top_p) == (0, live.services.settings.server.default_top_p)
    usage = response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (len(turn.prompt_ids), 12)
    again = client.responses.create(**ask, max_output_tokens=12).usage
    assert again is not None and again.input_tokens_details.cached_tokens > 0


def test_the_prompt_is_the_one_that_chat_gives(client: OpenAI, live: Live) -> None:
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Weather?"},
    ]
    ours = client.responses.create(
        model="clawd", input=messages, instructions="Be brief.", tools=[WEATHER], max_output_tokens=1
    )
    function = {key: value for key, value in WEATHER.items() if key != "type"}
    theirs = live.chat(
        [{"role": "system", "content": "Be brief."}, *messages],
        tools=[{"type": "function", "function": function}],
        max_tokens=1,
    ).json()
    assert live.turn(ours.id).prompt_ids == live.turn(theirs["id"]).prompt_ids
    assert live.turn(ours.id).session_id == live.turn(theirs["id"]).session_id


def test_a_stream_has_typed_events_and_adds_up_to_the_whole(scripted: ScriptedLive, client: OpenAI, live: Live) -> None:
    written = f"<think>hm</think>{TWO_CALLS}"
    scripted.engine.say(written, written, written)
    body = {"model": "clawd", "input": QUESTION, "tools": [WEATHER], "max_output_tokens": 500}
    whole = client.responses.create(**body)
    events = events_of(live.http.post("/v1/responses", json={**body, "stream": True}))
    kinds = [event["type"] for event in events]
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert kinds[-2:] == ["response.output_item.done", "response.completed"]
    assert kinds.count("response.function_call_arguments.delta") > 4
    with client.responses.stream(**body) as stream:
        final = stream.get_final_response()
    for response in (whole, final, Response.model_validate(events[-1]["response"])):
        assert response.status == "completed" and response.completed_at
        assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
        reasoning, message, oslo, rome = response.output
        assert (reasoning.content[0].text, message.content[0].text) == ("hm", "I look it up.")
        assert [json.loads(item.arguments) for item in (oslo, rome)] == [{"city": "Oslo"}, {"city": "Rome"}]
        assert oslo.call_id != rome.call_id
        assert response.usage is not None and response.usage.output_tokens_details.reasoning_tokens > 0
        assert whole.usage is not None and response.usage.output_tokens == whole.usage.output_tokens


def test_a_tool_loop_is_one_session_with_next_states(scripted: ScriptedLive, client: OpenAI) -> None:
    live = scripted.live
    scripted.engine.say(f"<think>hm</think>{TWO_CALLS}", "Rain in both.", "You are welcome.")
    history: list = [{"role": "user", "content": "The weather in a loop?"}]
    ask = {"model": "clawd", "tools": [WEATHER], "instructions": "Be brief."}
    first = client.responses.create(**ask, input=history)
    history += first.output
    history += [
        {"type": "function_call_output", "call_id": item.call_id, "output": "rain"}
        for item in first.output
        if item.type == "function_call"
    ]
    with client.responses.stream(**ask, input=history) as stream:
        second = stream.get_final_response()
    assert second.output_text == "Rain in both."
    history += [*second.output, {"role": "user", "content": "Thank you!"}]
    third = client.responses.create(**ask, input=history)
    turns = [live.turn(response.id) for response in (first, second, third)]
    assert len({turn.session_id for turn in turns}) == 1
    assert [turn.kind for turn in turns] == ["main"] * 3
    assert [turn.state for turn in turns] == ["judging", "judging", "waiting"]
    assert [message["content"] for message in turns[0].next_state] == ["rain", "rain"]
    assert [message["content"] for message in turns[1].next_state] == ["Thank you!"]


@pytest.mark.parametrize("written", [BROKEN_CALL, f"{TWO_CALLS}\nBoth asked."])
def test_what_a_model_writes_around_and_in_calls_does_not_cut_the_session(
    scripted: ScriptedLive, client: OpenAI, written: str
) -> None:
    scripted.engine.say(written, "Fine.")
    question = {"role": "user", "content": f"Weather, {len(written)}?"}
    first = client.responses.create(model="clawd", tools=[WEATHER], input=[question])
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "rain"}
        for item in first.output
        if item.type == "function_call"
    ]
    assert results
    second = client.responses.create(model="clawd", tools=[WEATHER], input=[question, *first.output, *results])
    assert scripted.live.turn(first.id).session_id == scripted.live.turn(second.id).session_id


def test_a_failing_engine_is_told_as_the_api_does(scripted: ScriptedLive, client: OpenAI) -> None:
    scripted.engine.fail()
    with pytest.raises(openai.InternalServerError):
        client.responses.create(model="clawd", input="hi")
    scripted.engine.fail()
    with client.responses.create(model="clawd", input="hi", stream=True) as stream:
        last = list(stream)[-1]
    assert last.type == "response.failed"
    assert (last.response.status, last.response.error.code) == ("failed", "server_error")


def test_a_conversation_may_change_its_api_in_the_middle(scripted: ScriptedLive, client: OpenAI) -> None:
    live = scripted.live
    scripted.engine.say("Hello.", "Fine.", "Bye.")
    question = {"role": "user", "content": "hi, over three APIs"}
    first = live.chat([question]).json()
    history: list[dict] = [
        question,
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "How are you?"},
    ]
    with live.anthropic() as anthropic:
        second = anthropic.messages.create(model="clawd", max_tokens=9, messages=history)
    history += [{"role": "assistant", "content": "Fine."}, {"role": "user", "content": "Bye!"}]
    third = client.responses.create(model="clawd", input=history)
    turns = [live.turn(each) for each in (first["id"], second.id, third.id)]
    assert len({turn.session_id for turn in turns}) == 1
    assert [turn.state for turn in turns] == ["judging", "judging", "waiting"]


def test_a_cache_key_names_the_session(client: OpenAI, live: Live) -> None:
    response = client.responses.create(model="clawd", input="hi", prompt_cache_key="mine", max_output_tokens=1)
    assert live.store.sessions.get(live.turn(response.id).session_id).key == "mine"


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "model_not_found"),
        ({"previous_response_id": "resp_x"}, openai.BadRequestError, "unsupported_value"),
        ({"input": "word " * 9000}, openai.BadRequestError, "context_length_exceeded"),
        ({"temperature": 5}, openai.BadRequestError, "invalid_value"),
        ({"tools": [{"type": "web_search"}]}, openai.BadRequestError, "unsupported_value"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_the_sdks_own(
    client: OpenAI, change: dict, error: type[openai.APIStatusError], code: str, stream: bool
) -> None:
    with pytest.raises(error) as caught:
        client.responses.create(**{"model": "clawd", "input": "hi", **change}, stream=stream)
    assert caught.value.code == code


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"model": "clawd"}'])
def test_bodies_that_are_no_request_are_a_400(live: Live, body: bytes) -> None:
    reply = live.http.post("/v1/responses", content=body, headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


def test_nothing_is_kept_to_be_fetched(client: OpenAI, live: Live) -> None:
    response = client.responses.create(model="clawd", input="hi", max_output_tokens=1)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_unknown_fields_are_counted_and_feedback_names_the_response(client: OpenAI, live: Live) -> None:
    response = client.responses.create(
        model="clawd", input="feedback on this?", max_output_tokens=1, include=["reasoning.encrypted_content"]
    )
    assert "include" in live.http.get("/clawd/v1/status").json()["ignored_fields"]
    assert live.http.post("/clawd/v1/feedback", json={"response_id": response.id, "score": 1}).json()["applied"]


def test_a_client_that_leaves_ends_its_turn(live: Live) -> None:
    body = {"model": "clawd", "input": "Tell a long story.", "stream": True, "max_output_tokens": 4000}
    with httpx.stream("POST", f"{live.url}/v1/responses", json=body, timeout=60) as reply:
        start = next(line for line in reply.iter_lines() if line.startswith("data: "))
    assert live.settled()
    turn = live.turn(json.loads(start.removeprefix("data: "))["response"]["id"])
    assert (turn.state, turn.reason) == ("discarded", "aborted")
