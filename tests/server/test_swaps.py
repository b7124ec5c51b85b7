"""Adapter versions that come, serve and go: staged in the real store, brought in and served by the real server."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clawd.config import ServerSettings, Settings
from clawd.doorbell import ring
from clawd.model.lora import LoraBase, LoraPair, read_lora_base, write_adapter_file
from clawd.server.engine.engine import Engine
from clawd.server.engine.types import AdapterVersion, GenerationRequest
from clawd.server.versions import ADAPTER_FILE
from clawd.store.records import User, Version
from tests.server.engine.asking import ids, running, until
from tests.server.live import Live, live_server
from tests.store.world import World

QUESTION = "What is the capital of France?"
RANK = 2
Pairs = dict[str, LoraPair]
_users = itertools.count()
_cold_runs = itertools.count()


@pytest.fixture(scope="module")
def cold(embedded_model: Path) -> Iterator[Engine]:
    """An engine that remembers nothing of what it is asked here: each run is under a version id of its own."""
    with running(embedded_model) as engine:
        yield engine


@pytest.fixture
def who(live: Live) -> tuple[User, str]:
    return new_user(live)


def new_user(live: Live) -> tuple[User, str]:
    """A user whose adapter has no version yet, and their key."""
    return live.store.people.add(f"u{next(_users)}")


def base_of(live: Live) -> LoraBase:
    return read_lora_base(live.services.model_path, live.services.versions.base_fingerprint)


def random_pairs(base: LoraBase, seed: int, strength: float) -> Pairs:
    random = np.random.default_rng(seed)
    pairs = {}
    for name, (out, into) in base.linears.items():
        a = random.standard_normal((RANK, into), np.float32) / into**0.5
        b = random.standard_normal((out, RANK), np.float32) * strength * 0.3 / RANK**0.5
        pairs[name] = LoraPair(a, b)
    return pairs


def write_file(path: Path, base: LoraBase, seed: int, strength: float = 2.0) -> None:
    write_adapter_file(path, base, random_pairs(base, seed, strength), alpha=RANK)


def stage(
    live: Live, user: User, write: Callable[[Path], None], after: Callable[[Path], None] = lambda _: None
) -> Version:
    """A version as the learner leaves it: one sample claimed, the file in place. `after`: what befalls it."""
    world, updates = World(live.store), live.store.updates
    fingerprint = live.services.versions.base_fingerprint
    turn = world.turn(world.session(user=user), user=user, base=fingerprint)
    assert live.store.turns.give_next_state(turn, turn, [{"role": "user", "content": "thanks"}])
    live.store.signals.settle(turn, [], 1)
    update = updates.claim(user.adapter.id, fingerprint, 1, {})
    assert update is not None
    folder = live.services.folder.adapters / update.id
    folder.mkdir(parents=True)
    file = folder / ADAPTER_FILE
    write(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    after(file)
    return updates.stage(update.id, folder, digest, fingerprint, {}, {})


def brought_in(live: Live, staged: Version) -> Version:
    """What the swapper has made of it."""
    ring(live.services.folder.server_bell)
    until(lambda: live.store.updates.version(staged.id).state != "staged", 30)
    version = live.store.updates.version(staged.id)
    if version.state == "active":  # the store says so a moment before the table does
        until(lambda: getattr(live.services.versions.active(version.adapter_id), "id", None) == version.id, 30)
    return version


def publish(live: Live, user: User, seed: int, strength: float = 2.0) -> Version:
    base = base_of(live)
    version = brought_in(live, stage(live, user, lambda path: write_file(path, base, seed, strength)))
    assert version.state == "active"
    return version


def chat(live: Live, key: str, messages: list[dict] | str = QUESTION, **more: Any) -> dict[str, Any]:
    response = live.chat(messages, headers={"Authorization": f"Bearer {key}"}, **more)
    assert response.status_code == 200, response.text
    return response.json()


def served_version(answer: dict[str, Any]) -> str:
    return answer["system_fingerprint"].split("-")[1]


def answered(live: Live, answer: dict[str, Any]) -> list[int]:
    return live.turn(answer["id"]).response_ids


def cold_run(cold: Engine, live: Live, answer: dict[str, Any], version: Version | None) -> list[int]:
    """What an engine that has seen nothing answers to the same prompt."""
    turn = live.turn(answer["id"])
    served = None
    if version is not None:
        served = AdapterVersion(f"cold-{next(_cold_runs)}", "a", 1, version.folder / ADAPTER_FILE)
    return ids(cold, turn.prompt_ids, len(turn.response_ids), version=served)


def loaded(live: Live) -> int:
    return live.services.engine.stats().versions_loaded


def test_two_users_never_share_a_prompt(live: Live, cold: Engine) -> None:  # A1
    (ann, ann_key), (bob, bob_key) = new_user(live), new_user(live)
    of_ann, of_bob = publish(live, ann, 1), publish(live, bob, 2)
    first, second = chat(live, ann_key), chat(live, ann_key)
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0  # the cache is warm
    by_bob, by_base = chat(live, bob_key), chat(live, bob_key, model=live.services.versions.base_name)
    assert answered(live, first) == cold_run(cold, live, first, of_ann)
    assert answered(live, by_bob) == cold_run(cold, live, by_bob, of_bob)
    assert len({tuple(answered(live, answer)) for answer in (first, by_bob, by_base)}) == 3


def test_a_new_version_answers_as_if_nothing_had_been_before(
    live: Live, cold: Engine, who: tuple[User, str]
) -> None:  # A2
    user, key = who
    publish(live, user, 3)
    before, _ = chat(live, key), chat(live, key)
    second = publish(live, user, 4)
    after = chat(live, key)
    assert (served_version(before), served_version(after)) == ("v1", "v2")
    assert answered(live, after) == cold_run(cold, live, after, second)
    assert answered(live, after) != answered(live, before)


def test_a_slow_stream_ends_on_its_version(live: Live, who: tuple[User, str]) -> None:  # A3
    user, key = who
    first = publish(live, user, 5)
    idle = loaded(live)
    body = {"model": "clawd", "messages": [{"role": "user", "content": "Tell."}], "stream": True, "max_tokens": 300}
    headers = {"Authorization": f"Bearer {key}"}
    with live.http.stream("POST", "/v1/chat/completions", json={**body, "seed": 1}, headers=headers) as response:
        events = (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))
        begun = json.loads(next(events))
        second = publish(live, user, 6)
        following = chat(live, key, max_tokens=2)
        assert loaded(live) == idle + 1
        assert live.turn(begun["id"]).finish_reason is None
        rest = list(events)
    assert rest[-1] == "[DONE]"
    assert {json.loads(event)["system_fingerprint"] for event in rest[:-1]} == {begun["system_fingerprint"]}
    turn = live.turn(begun["id"])
    assert (turn.version_id, turn.finish_reason) == (first.id, "length")
    assert live.turn(following["id"]).version_id == second.id
    assert served_version(following) == "v2"
    until(lambda: loaded(live) == idle, 5)


def test_a_retired_version_is_in_memory_only_while_it_is_asked(live: Live, who: tuple[User, str]) -> None:
    user, key = who
    publish(live, user, 5)
    as_active = chat(live, key)
    resolved = live.services.versions.resolve(user, "clawd").version
    idle = loaded(live)
    publish(live, user, 6)
    until(lambda: loaded(live) == idle, 10)  # the first one goes a moment after the second has taken over
    named = chat(live, key, model=f"clawd@{user.name}:v1")
    assert served_version(named) == "v1"
    assert answered(live, named) == answered(live, as_active)
    until(lambda: loaded(live) == idle, 5)
    # Accepted before the flip, admitted after it.
    ended = threading.Event()
    request = GenerationRequest("late", (1, 2, 3), 1, version=resolved)
    live.services.engine.submit(request, lambda event: ended.set())
    assert ended.wait(10)
    until(lambda: loaded(live) == idle, 5)


def test_two_hundred_requests_across_twenty_publications(live: Live, who: tuple[User, str]) -> None:  # A4
    user, key = who
    base = base_of(live)
    served: list[list[int]] = [[], [], []]
    wrong: list[str] = []
    published = threading.Event()

    def ask(mine: list[int], number: int) -> None:
        while not published.is_set() or sum(map(len, served)) < 200:
            text = f"{number} {len(mine)}"
            response = live.chat(text, headers={"Authorization": f"Bearer {key}"}, max_tokens=1 + len(mine) % 2)
            if response.status_code != 200:
                wrong.append(response.text)
                return
            version = served_version(response.json())
            mine.append(0 if version == "base" else int(version[1:]))

    threads = [threading.Thread(target=ask, args=(mine, number)) for number, mine in enumerate(served)]
    for thread in threads:
        thread.start()
    try:
        for seed in range(20):
            staged = stage(live, user, lambda path, seed=seed: write_file(path, base, seed, 0.1))
            assert brought_in(live, staged).state == "active"
    finally:
        published.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert sum(map(len, served)) >= 200
    for mine in served:
        assert mine == sorted(mine)  # nobody goes back to a version that has been replaced
    assert len(set(itertools.chain(*served))) >= 10  # they were asked all along
    assert served_version(chat(live, key, max_tokens=1)) == "v20"
    assert live.store.verify() == []


def not_finite(path: Path, base: LoraBase) -> None:
    pairs = random_pairs(base, 7, 1.0)
    next(iter(pairs.values())).b[0, 0] = np.nan
    write_adapter_file(path, base, pairs, alpha=RANK)


def zero(path: Path, base: LoraBase) -> None:
    write_adapter_file(path, base, random_pairs(base, 7, 0.0), alpha=RANK)


def renamed(path: Path, base: LoraBase) -> None:
    linears = {name.replace("blk.3.ffn_up", "blk.3.ffn_upper"): shape for name, shape in base.linears.items()}
    write_file(path, dataclasses.replace(base, linears=linears), 7)


def misshapen(path: Path, base: LoraBase) -> None:
    linears = {**base.linears, "blk.3.ffn_up.weight": (8, 8)}
    write_file(path, dataclasses.replace(base, linears=linears), 7)


def for_another_base(path: Path, base: LoraBase) -> None:
    write_file(path, dataclasses.replace(base, fingerprint="0" * 64), 7)


def empty(path: Path, base: LoraBase) -> None:
    path.touch()


def half(path: Path, base: LoraBase) -> None:
    write_file(path, base, 7)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def whole(path: Path, base: LoraBase) -> None:
    write_file(path, base, 7)


def change_one_byte(path: Path) -> None:
    """In the middle of a factor: still a finite, complete adapter for this base."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 & ~1] ^= 1
    path.write_bytes(data)


DAMAGES: list[tuple[Callable[[Path, LoraBase], None], Callable[[Path], None], str]] = [
    (empty, lambda _: None, "is empty"),
    (half, lambda _: None, "damaged or half-written"),
    (not_finite, lambda _: None, "aren't finite"),
    (zero, lambda _: None, "without effect"),
    (renamed, lambda _: None, "blk.3.ffn_upper"),
    (misshapen, lambda _: None, "its factors are"),
    (for_another_base, lambda _: None, "made for another base model"),
    (whole, change_one_byte, "has changed since it was staged"),
    (whole, Path.unlink, "can't be read"),
]


def test_a_damaged_file_changes_nothing_that_serves(live: Live, who: tuple[User, str]) -> None:  # A5
    user, key = who
    base = base_of(live)
    good = publish(live, user, 8)
    expected, in_memory = answered(live, chat(live, key)), loaded(live)
    for write, after, reason in DAMAGES:
        staged = stage(live, user, lambda path, write=write: write(path, base), after)
        assert brought_in(live, staged).state == "rejected", reason
        newest = live.store.updates.newest(user.adapter.id)
        assert newest is not None
        assert newest.state == "refused"
        assert reason in (newest.reason or "")
        samples = live.store.signals.of_update(staged.update_id)
        assert [sample.state for sample in samples] == ["quarantined"]
        answer = chat(live, key)
        assert live.turn(answer["id"]).version_id == good.id
        assert len(answered(live, answer)) == len(expected)
        assert loaded(live) == in_memory
    assert live.store.verify() == []
    assert served_version(chat(live, key, max_tokens=1)) == "v1"
    assert publish(live, user, 9).state == "active"


def test_a_version_that_could_not_take_over_is_not_kept_in_memory(
    live: Live, who: tuple[User, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses once: the next look brings the version in."""
    user, key = who
    base, idle, tried = base_of(live), loaded(live), threading.Event()
    activate = live.store.updates.activate

    def refuse_once(version_id: str) -> None:
        monkeypatch.setattr(live.store.updates, "activate", activate)
        seen.append(loaded(live))
        tried.set()
        raise OSError("the disk is full")

    seen: list[int] = []
    monkeypatch.setattr(live.store.updates, "activate", refuse_once)
    staged = stage(live, user, lambda path: write_file(path, base, 10))  # without a ring: one look a second
    assert tried.wait(30)
    assert seen == [idle + 1]
    until(lambda: loaded(live) == idle, 0.9)  # before the next look
    assert served_version(chat(live, key, max_tokens=1)) == "base"
    assert brought_in(live, staged).state == "active"


def conversation(texts: Sequence[str]) -> list[dict]:
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


def test_a_long_conversation_is_warm_under_the_new_version(live: Live, who: tuple[User, str]) -> None:
    user, key = who
    publish(live, user, 11)
    long = " ".join(f"Item {number} costs {number * 7} coins." for number in range(40))
    first = chat(live, key, long, max_tokens=4)
    assert first["usage"]["prompt_tokens"] > 256
    publish(live, user, 12)
    texts = [long, first["choices"][0]["message"]["content"], "And the next one?"]
    following = chat(live, key, conversation(texts), max_tokens=2)
    assert served_version(following) == "v2"
    assert following["usage"]["prompt_tokens_details"]["cached_tokens"] > 256
    event = json.loads(live.store.events("version_active")[-1]["detail"])
    assert event["warm_tokens"] > 256


class TestDamagedOnDisk:
    """Files that are no longer what was served when the server starts again, or when they are asked for by name."""

    def test_the_base_answers_loudly_until_a_good_version_comes(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with live_server(tmp_path) as live:
            user, key = new_user(live)
            other, other_key = new_user(live)
            retired, active = publish(live, user, 13), publish(live, user, 14)
            publish(live, other, 15)
        change_one_byte(active.folder / ADAPTER_FILE)
        with caplog.at_level(logging.ERROR, "clawd.server.versions"), live_server(tmp_path) as live:
            assert "has changed since it was staged" in caplog.text
            assert served_version(chat(live, key)) == "base"
            assert served_version(chat(live, other_key)) == "v1"
            status = live.http.get("/clawd/v1/status", headers={"Authorization": f"Bearer {key}"}).json()
            told = next(adapter for adapter in status["adapters"] if adapter["name"] == user.adapter.name)
            assert told["active_version"] is None
            assert "has changed since it was staged" in told["waits_for"]
            self.assert_refused(live, user, key, 2, "has changed since it was staged")
            # A retired one is asked for by name: in memory only as long as that takes, after a restart, too.
            in_memory = loaded(live)
            assert served_version(chat(live, key, model=f"clawd@{user.name}:v1")) == "v1"
            until(lambda: loaded(live) == in_memory, 5)
            self.damage_and_mend(live, user, key, retired.folder / ADAPTER_FILE)
            publish(live, user, 16)
            assert served_version(chat(live, key)) == "v3"
            assert live.store.verify() == []

    @pytest.mark.parametrize("damage", [change_one_byte, Path.unlink, Path.write_text])
    def test_an_active_version_answers_on_whatever_becomes_of_its_file(
        self, tmp_path: Path, damage: Callable[..., object]
    ) -> None:
        few = Settings(server=ServerSettings(adapters_loaded=1))
        with live_server(tmp_path, few) as live:
            users = [new_user(live) for _ in range(3)]
            versions = [publish(live, user, 20 + seed) for seed, (user, _) in enumerate(users)]
            expected = [answered(live, chat(live, key)) for _, key in users]
        with live_server(tmp_path, few) as live:  # nobody has asked since the start
            until(lambda: loaded(live) == 3, 10)
            for version in versions:
                file = version.folder / ADAPTER_FILE
                damage(file, "junk") if damage is Path.write_text else damage(file)
            answers = [chat(live, key) for _, key in users]
            assert [served_version(answer) for answer in answers] == ["v1"] * 3
            assert [answered(live, answer) for answer in answers] == expected

    def damage_and_mend(self, live: Live, user: User, key: str, file: Path) -> None:
        data = file.read_bytes()
        file.write_bytes(data[:-1000])
        self.assert_refused(live, user, key, 1, "has changed since it was staged")
        file.unlink()
        self.assert_refused(live, user, key, 1, "can't be read")
        file.write_bytes(data)
        assert served_version(chat(live, key, model=f"clawd@{user.name}:v1")) == "v1"

    def assert_refused(self, live: Live, user: User, key: str, number: int, reason: str) -> None:
        recorded = live.store.turns.counts()
        response = live.chat(QUESTION, f"clawd@{user.name}:v{number}", {"Authorization": f"Bearer {key}"})
        assert response.status_code == 409, response.text
        error = response.json()["error"]
        assert error["code"] == "adapter_unusable"
        assert reason in error["message"]
        assert "Restore the file" in error["message"]
        assert live.store.turns.counts() == recorded

    def test_a_file_that_was_checked_is_not_read_again(
        self, live: Live, who: tuple[User, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user, key = who
        publish(live, user, 17)
        publish(live, user, 18)
        read: list[str] = []
        digest = hashlib.file_digest
        monkeypatch.setattr(hashlib, "file_digest", lambda file, name: read.append(file.name) or digest(file, name))
        for _ in range(3):
            chat(live, key, model=f"clawd@{user.name}:v1", max_tokens=1)
            chat(live, key, model=f"clawd@{user.name}:v2", max_tokens=1)
        assert len(read) == 1  # the active one is in use anyway
