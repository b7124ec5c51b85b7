"""A conversation over a restart of the server."""

from __future__ import annotations

from pathlib import Path

from clawd.config import ServerSettings, Settings
from tests.server.live import live_server

LONG = " ".join(f"Item {number} costs {number * 7} coins." for number in range(60))


def test_a_long_conversation_is_not_read_again_after_a_restart(tmp_path: Path) -> None:
    with live_server(tmp_path) as live:
        first = live.chat(LONG, max_tokens=2).json()
        prompt_tokens = first["usage"]["prompt_tokens"]
        assert prompt_tokens > 512
    history = [
        {"role": "user", "content": LONG},
        {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
        {"role": "user", "content": "And the next?"},
    ]
    with live_server(tmp_path) as live:
        following = live.chat(history, max_tokens=2).json()
        assert following["usage"]["prompt_tokens_details"]["cached_tokens"] >= prompt_tokens - 8
        page = live.http.get("/metrics").text
        assert "clawd_engine_saved_states 1.0" in page
        restored = next(line for line in page.splitlines() if line.startswith("clawd_engine_restored_tokens_total"))
        assert float(restored.split()[1]) >= prompt_tokens - 8
        states = live.services.folder.states
    assert [file.stat().st_mode & 0o777 for file in states.iterdir()] == [0o600]
    with live_server(tmp_path, Settings(server=ServerSettings(saved_states_mb=0))) as live:
        assert list(states.iterdir()) == [], "switched off, what was said lies in no file but the store's"
