"""The OpenAPI page is true: whatever is sent to any route, the answer is one that it tells of, and never a 500."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from clawd.config import ModelSettings, ServerSettings, Settings
from tests.server.live import Live, live_server

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SHORT = 2  # tokens of an answer: what is tried are shapes
EXAMPLES = 10
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    limits = Settings(model=ModelSettings(context=512), server=ServerSettings(default_max_tokens=SHORT, max_body_mb=1))
    with live_server(tmp_path_factory.mktemp("home"), limits) as live:
        yield live


def shortened(body: Any, example: int) -> Any:
    """The body with answers that don't take minutes, two times of three for a model that there is."""
    if not isinstance(body, dict):
        return body
    limits = {name: min(body[name], SHORT) for name in LIMITS if type(body.get(name)) in (int, float)}
    model = {"model": "clawd"} if example % 3 and isinstance(body.get("model"), str) else {}
    return {**body, **limits, **model}


def tried_out(operation: Any, mode: GenerationMode) -> Counter[int]:
    """How often which status came."""
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        case.body = shortened(case.body, statuses.total())
        response = case.call(timeout=60)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    check()
    return statuses


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_route_answers_as_the_page_says(served: Live, mode: GenerationMode) -> None:
    page = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    operations = [found.ok() for found in page.get_all_operations()]
    seen = {
        f"{operation.method.upper()} {operation.path}": tried_out(operation, mode)
        for operation in operations
        if mode == GenerationMode.POSITIVE or operation.body
    }
    routes = ("chat/completions", "completions", "messages", "messages/count_tokens", "responses")
    assert {*(f"POST /v1/{route}" for route in routes), "POST /clawd/v1/feedback"} <= set(seen)
    if mode == GenerationMode.POSITIVE:
        assert all(seen[f"POST /v1/{route}"][200] for route in routes), seen
    assert served.services.engine.alive and served.settled()
    assert served.store.verify() == []


STREAMS = {
    "chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": SHORT},
    "completions": {"prompt": "hi", "max_tokens": SHORT},
    "messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": SHORT},
    "responses": {"input": "hi", "max_output_tokens": SHORT},
}


@pytest.mark.parametrize("route", STREAMS)
@pytest.mark.parametrize("stream", [True, False])
def test_streams_and_whole_answers_are_as_the_page_says(served: Live, route: str, stream: bool) -> None:
    page = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    body = {"model": "clawd", "stream": stream, **STREAMS[route]}
    case = page[f"/v1/{route}"]["POST"].Case(body=body, media_type="application/json")
    response = case.call(timeout=60)
    assert response.status_code == 200
    assert stream == response.headers["content-type"][0].startswith("text/event-stream")
    case.validate_response(response, checks=CHECKS)
