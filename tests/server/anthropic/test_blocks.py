"""The events of a message as blocks grow, put together again by the SDK's own accumulator."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from clawd.model.replies.deltas import CallArguments, CallBegins, Content, Delta, Reasoning
from clawd.server.anthropic.blocks import Blocks

EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
EVERYTHING: list[Delta] = [
    Reasoning("h"),
    Reasoning("m"),
    Content("I "),
    Content("look."),
    CallBegins(0, "get_weather"),
    CallArguments(0, '{"city": '),
    CallArguments(0, '"Oslo"}'),
    CallBegins(1, "get_time"),
    Content("Done."),
]


def grown(deltas: Sequence[Delta], eager: Sequence[str] = ()) -> tuple[Blocks, list[dict]]:
    blocks = Blocks("msg_1", eager)
    events = [event for delta in deltas for event in blocks.add(delta)]
    return blocks, [*events, *blocks.end()]


def accumulated(events: list[dict]) -> list[dict]:
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "clawd", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 0}
    all_events = [{"type": "message_start", "message": {**start, "usage": usage}}, *events]
    snapshot = None
    buffers: dict[int, bytes] = {}
    for event in all_events:
        snapshot = accumulate_event(event=EVENT.validate_python(event), current_snapshot=snapshot, json_bufs=buffers)
    assert snapshot is not None
    return [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in snapshot.content]


@pytest.mark.parametrize("eager", [[], ["get_weather"]])
def test_a_stream_adds_up_to_the_whole(eager: list[str]) -> None:
    blocks, events = grown(EVERYTHING, eager)
    assert blocks.content == [
        {"type": "thinking", "thinking": "hm", "signature": "msg_1"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1_2", "name": "get_weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "toolu_1_3", "name": "get_time", "input": {}},
        {"type": "text", "text": "Done."},
    ]
    assert accumulated(events) == blocks.content
    assert blocks.called


def test_each_block_starts_grows_and_stops_before_the_next() -> None:
    _, events = grown(EVERYTHING)
    open_block = None
    seen = []
    for event in events:
        if event["type"] == "content_block_start":
            assert open_block is None
            open_block = event["index"]
            seen.append(open_block)
        assert event["index"] == open_block
        if event["type"] == "content_block_stop":
            open_block = None
    assert open_block is None and seen == [0, 1, 2, 3, 4]


def test_an_input_is_told_when_it_is_whole_or_as_it_comes_for_an_eager_tool() -> None:
    def pieces(eager: list[str]) -> list[str]:
        deltas = [event["delta"] for event in grown(EVERYTHING, eager)[1] if "delta" in event]
        return [delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta"]

    assert pieces([]) == ['{"city": "Oslo"}']
    assert pieces(["get_weather"]) == ['{"city": ', '"Oslo"}']


@pytest.mark.parametrize("arguments", ["look it up", '{"city": Oslo}', '{"city": "Os', '{"x": NaN}'])
def test_no_input_breaks_the_sdk(arguments: str) -> None:
    blocks, events = grown([CallBegins(0, "f"), CallArguments(0, arguments)])
    assert accumulated(events)[0]["input"] == blocks.content[0]["input"] == {"unreadable_arguments": arguments}


def test_nothing_said_is_no_block() -> None:
    assert grown([Content(""), Reasoning("")])[1] == []
