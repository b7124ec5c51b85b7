"""The events of a response as items grow, against the output that they add up to."""

from __future__ import annotations

from collections.abc import Sequence

from clawd.model.replies.deltas import CallArguments, CallBegins, Content, Delta, Reasoning
from clawd.server.openai_responses.items import Items

EVERYTHING: list[Delta] = [
    Reasoning("h"),
    Reasoning("m"),
    Content("I "),
    Content("look."),
    CallBegins(0, "get_weather"),
    CallArguments(0, '{"city": '),
    CallArguments(0, '"Oslo"}'),
    CallBegins(1, "get_time"),
]


def grown(deltas: Sequence[Delta], status: str = "completed") -> tuple[Items, list[dict]]:
    items = Items("t1")
    events = [event for delta in deltas for event in items.add(delta)]
    return items, [*events, *items.end(status)]


def test_what_the_output_is() -> None:
    items, _ = grown(EVERYTHING)
    reasoning, message, weather, time = items.output
    assert reasoning == {
        "id": "rs_t1_0",
        "type": "reasoning",
        "status": "completed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    assert message == {
        "id": "msg_t1_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}],
    }
    assert (weather["type"], weather["name"], weather["arguments"]) == (
        "function_call",
        "get_weather",
        '{"city": "Oslo"}',
    )
    assert (time["name"], time["arguments"]) == ("get_time", "")
    assert weather["call_id"] != time["call_id"]


def test_events_come_in_order_and_add_up() -> None:
    items, events = grown(EVERYTHING)
    kinds = [(event["output_index"], event["type"].removeprefix("response.")) for event in events]
    assert kinds == [
        (0, "output_item.added"),
        (0, "content_part.added"),
        (0, "reasoning_text.delta"),
        (0, "reasoning_text.delta"),
        (0, "reasoning_text.done"),
        (0, "content_part.done"),
        (0, "output_item.done"),
        (1, "output_item.added"),
        (1, "content_part.added"),
        (1, "output_text.delta"),
        (1, "output_text.delta"),
        (1, "output_text.done"),
        (1, "content_part.done"),
        (1, "output_item.done"),
        (2, "output_item.added"),
        (2, "function_call_arguments.delta"),
        (2, "function_call_arguments.delta"),
        (2, "function_call_arguments.done"),
        (2, "output_item.done"),
        (3, "output_item.added"),
        (3, "function_call_arguments.done"),
        (3, "output_item.done"),
    ]
    assert [event["item"] for event in events if event["type"].endswith("item.done")] == items.output
    added = [event["item"] for event in events if event["type"].endswith("item.added")]
    assert [item["id"] for item in added] == [item["id"] for item in items.output]
    assert all(item["status"] == "in_progress" and not item.get("content") for item in added)
    for event in events:
        if "item_id" in event:
            assert event["item_id"] == items.output[event["output_index"]]["id"]


def test_the_item_that_is_cut_says_so() -> None:
    items, _ = grown(EVERYTHING, "incomplete")
    assert [item["status"] for item in items.output] == ["completed", "completed", "completed", "incomplete"]


def test_nothing_said_is_no_item() -> None:
    assert grown([Content(""), Reasoning("")])[1] == []
