"""What Prometheus reads, checked by its own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.server.live import Live


def figures(live: Live) -> dict[tuple[str, str], float]:
    reply = live.http.get("/metrics")
    assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(reply.text)
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_an_answer_moves_the_figures(live: Live) -> None:
    before = figures(live)
    reply = live.chat("hi", max_tokens=5).json()
    after = figures(live)

    def moved(name: str, label: str = "") -> float:
        return after[name, label] - before.get((name, label), 0)

    assert moved("clawd_engine_response_tokens_total") == reply["usage"]["completion_tokens"]
    assert moved("clawd_requests_total", reply["choices"][0]["finish_reason"]) == 1
    assert moved("clawd_first_token_seconds_count") == 1
    assert moved("clawd_request_duration_seconds_count") == 1
    assert moved("clawd_turns", "waiting") == 1
    assert after["clawd_engine_cells_total", ""] == live.services.engine.shape.cells
