"""Talk, judge, train, swap: the real daemon on the real small model, over HTTP, with a stream going on all the while.

Cases E1 (a chat during a running update) and A3 (a stream keeps its version); what is stored agrees afterwards.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from clawd.paths import DataFolder
from clawd.store import Store
from tests.cli.command import clawd, detached_daemon

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

SAMPLES = 4
LONGEST_UPDATE_S = 300


@dataclass
class Loop:
    """A daemon that trains after four samples, in one step."""

    home: Path
    url: str
    failures: list[str] = field(default_factory=list)

    def chat(self, messages: list[dict], **fields: object) -> dict:
        body = {"model": "clawd", "messages": messages, "max_tokens": 16, "temperature": 0.7, "seed": 1, **fields}
        reply = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=120)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def adapter(self) -> dict:
        return httpx.get(f"{self.url}/clawd/v1/status", timeout=60).json()["adapters"][0]

    def session(self, number: int) -> None:
        """A question, and a correction of its answer."""
        messages = [{"role": "user", "content": f"Tell me about the number {number}."}]
        answer = self.chat(messages)["choices"][0]["message"]
        self.chat([*messages, answer, {"role": "user", "content": "No, too long. Answer in one short sentence."}])


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    home = tmp_path_factory.mktemp("home")
    # Streams that never rest: without a bound the update would stand back for all of its default time.
    flags = [f"--learn.samples_per_update={SAMPLES}", "--learn.steps=1", "--learn.max_pause_s=10"]
    with detached_daemon(home, *flags):
        record = json.loads(DataFolder(home).daemon_file.read_text())
        yield Loop(home, record["url"])


class Streams:
    """Streams one after another until told to stop; keeps each one's fingerprint and when it began."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._should_exit = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seen: list[tuple[float, str]] = []
        self.failures: list[str] = []

    def __enter__(self) -> Streams:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._should_exit.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._should_exit.is_set():
            try:
                self._stream()
            except (httpx.HTTPError, AssertionError, ValueError) as error:
                self.failures.append(repr(error))

    def _stream(self) -> None:
        began = time.time()
        body = {"model": "clawd", "messages": [{"role": "user", "content": "Count."}], "stream": True, "max_tokens": 12}
        url = f"{self._loop.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, headers={"X-Turn-Type": "side"}, timeout=120) as reply:
            assert reply.status_code == 200
            lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        fingerprints = {json.loads(line)["system_fingerprint"] for line in lines[:-1]}
        assert len(fingerprints) == 1  # a stream keeps its version to its end
        self.seen.append((began, fingerprints.pop()))


def test_talk_judge_train_swap(loop: Loop) -> None:
    with Streams(loop) as streams:
        for number in range(SAMPLES):
            loop.session(number)
        deadline = time.monotonic() + LONGEST_UPDATE_S
        while not loop.adapter()["active_version"]:
            adapter = loop.adapter()
            assert (adapter["last_update"] or {}).get("state") not in ("failed", "refused"), adapter
            assert time.monotonic() < deadline, adapter
            time.sleep(0.2)
        after = loop.chat([{"role": "user", "content": "Say hello."}])
        time.sleep(1)

    assert streams.failures == []
    assert after["system_fingerprint"].endswith("-v1")
    with Store(DataFolder(loop.home).database) as store:
        assert store.verify() == []
        user = store.people.named("default")
        version = store.updates.active_version(user.adapter.id)
        assert version is not None and version.number == 1
        update = store.updates.get(version.update_id)
        samples = store.signals.of_update(update.id)
        assert [sample.state for sample in samples] == ["used"] * SAMPLES
        assert all(sample.reward == -1 and store.signals.hints(sample.turn_id) for sample in samples)
        assert store.turns.get(after["id"].removeprefix("chatcmpl-")).version_id == version.id
        during = [seen for seen in streams.seen if update.started_at < seen[0] < version.staged_at]
        assert during and all(fingerprint.endswith("-base") for _, fingerprint in during)
        assert streams.seen[-1][1].endswith("-v1")
        assert store.events("version_active")[0]["subject"] == version.id
        files = {path.name for path in version.folder.iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "adapter.gguf", "manifest.json"} <= files


def test_the_version_can_be_asked_for_by_name_and_beside_the_base(loop: Loop) -> None:
    ids = [model["id"] for model in httpx.get(f"{loop.url}/v1/models", timeout=60).json()["data"]]
    assert ids[:3] == ["clawd", "clawd@default", "clawd@default:v1"]
    question = [{"role": "user", "content": "Name three rivers."}]
    answers = {name: loop.chat(question, model=name, temperature=0) for name in ids}
    assert answers["clawd"]["system_fingerprint"] == answers["clawd@default:v1"]["system_fingerprint"]
    assert answers[ids[-1]]["system_fingerprint"].endswith("-base")


def test_the_version_survives_a_restart(loop: Loop) -> None:
    assert clawd(loop.home, "stop").returncode == 0
    with detached_daemon(loop.home):
        loop.url = json.loads(DataFolder(loop.home).daemon_file.read_text())["url"]
        assert loop.adapter()["active_version"] == 1
        assert loop.chat([{"role": "user", "content": "Hi."}])["system_fingerprint"].endswith("-v1")
