"""The real server in this process: real store, real engine on the embedded model, real HTTP on a free port."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from anthropic import Anthropic
from openai import OpenAI

from clawd.config import Settings
from clawd.paths import DataFolder
from clawd.server.process import HttpServer, running_services
from clawd.server.services import Services
from clawd.server.wire import turn_of_response


class Live:
    def __init__(self, services: Services, url: str) -> None:
        self.services = services
        self.store = services.store
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=120)

    def openai(self, key: str = "none", **headers: str) -> OpenAI:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, default_headers=named, max_retries=0)

    def anthropic(self, key: str | None = "none", token: str | None = None) -> Anthropic:
        """`key` goes as x-api-key, `token` as a bearer."""
        return Anthropic(base_url=self.url, api_key=key, auth_token=token, max_retries=0)

    def chat(
        self, messages: list[dict] | str, model: str = "clawd", headers: dict | None = None, **more
    ) -> httpx.Response:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 8, **more}
        return self.http.post("/v1/chat/completions", json=body, headers=headers or {})

    def wait_until_idle(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            stats = self.services.engine.stats()
            if stats.running + stats.waiting + stats.paused == 0:
                return True
            time.sleep(0.01)
        return False

    def settled(self, within_s: float = 5) -> bool:
        """Whether, by then, every request that was accepted has been stored to its end."""
        deadline = time.monotonic() + within_s
        while self.services.in_flight and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.services.in_flight == 0

    def turn(self, response_id: str):
        return self.store.turns.get(turn_of_response(response_id))


@contextmanager
def live_server(home: Path, settings: Settings | None = None) -> Iterator[Live]:
    folder = DataFolder(home)
    folder.create()
    with running_services(settings or Settings(), folder) as services, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = HttpServer(services, listener)
        thread = threading.Thread(target=lambda: asyncio.run(server.run()))
        thread.start()
        live = Live(services, f"http://127.0.0.1:{listener.getsockname()[1]}")
        try:
            yield live
        finally:
            live.http.close()
            server.exit_soon()
            thread.join()
