"""Another version serves because somebody wished so: live, through the store, without a restart (A3, A8, A9)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawd.config import ModelSettings, Settings
from clawd.doorbell import ring
from clawd.store.records import Switch, User, Version
from tests.adapter_files import base_of, trained
from tests.server.engine.asking import until
from tests.server.live import Live, live_server


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Live]:
    with serving(tmp_path_factory.mktemp("home"), tiny_model) as server:
        yield server


def serving(home: Path, model: Path) -> Any:
    return live_server(home, Settings(model=ModelSettings(path=model)))


class Person:
    """A user of a live server, with an adapter of versions 1 … n; the last one serves."""

    def __init__(self, live: Live, name: str, versions: int) -> None:
        self.live = live
        user, self.key = live.store.people.add(name)
        self.user: User = user
        base = base_of(live.services.model_path, live.services.folder.cache)
        self.versions: list[Version] = []
        for seed in range(versions):
            version = trained(live.services.folder, live.store, user, base, seed)
            self.versions.append(version)
            ring(live.services.folder.server_bell)
            until(lambda: live.services.versions.active(user.adapter.id) is not None, 20)
            until(lambda version=version: live.services.versions.active(user.adapter.id).id == version.id, 20)

    def wish(self, version: Version | None) -> Switch:
        """Ask for a version; how that was answered."""
        store = self.live.store
        switch = store.lifecycle.ask(self.user.adapter.id, version.id if version else None, "person", "test")
        ring(self.live.services.folder.server_bell)
        until(lambda: store.lifecycle.switch(switch.id).state != "waiting", 20)
        wanted = version.id if version else None
        switch = store.lifecycle.switch(switch.id)
        if switch.state == "done":  # the store says so a moment before the table does
            until(lambda: getattr(self.live.services.versions.active(self.user.adapter.id), "id", None) == wanted, 20)
        return switch

    def served(self, **more: Any) -> str:
        response = self.live.chat("hi", headers={"Authorization": f"Bearer {self.key}"}, max_tokens=2, **more)
        assert response.status_code == 200, response.text
        return response.json()["system_fingerprint"].split("-")[1]

    def refused(self, model: str) -> tuple[int, str]:
        response = self.live.chat("hi", model, {"Authorization": f"Bearer {self.key}"})
        return response.status_code, response.json()["error"]["message"]


def test_the_next_request_is_answered_by_the_chosen_version(live: Live) -> None:
    ann = Person(live, "ann", 3)
    assert ann.served() == "v3"
    assert ann.wish(ann.versions[0]).state == "done"
    assert ann.served() == "v1"
    assert [version.state for version in live.store.updates.versions(ann.user.adapter.id)] == [
        "active",
        "retired",
        "retired",
    ]
    assert ann.wish(None).state == "done"
    assert ann.served() == "base"
    assert ann.wish(ann.versions[2]).state == "done"
    assert ann.served() == "v3"
    assert ann.wish(ann.versions[2]).state == "done"  # it is there already
    assert live.store.verify() == []


def test_a_running_stream_ends_on_its_version(live: Live) -> None:
    bob = Person(live, "bob", 2)
    body = {"model": "clawd", "messages": [{"role": "user", "content": "Tell."}], "stream": True, "max_tokens": 400}
    headers = {"Authorization": f"Bearer {bob.key}"}
    with live.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        events = (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))
        begun = json.loads(next(events))
        assert live.turn(begun["id"]).state == "recorded"
        assert bob.wish(bob.versions[0]).state == "done"
        rest = list(events)
    assert {json.loads(event)["system_fingerprint"] for event in rest[:-1]} == {begun["system_fingerprint"]}
    assert live.turn(begun["id"]).version_id == bob.versions[1].id
    assert bob.served() == "v1"


def test_a_wish_that_cannot_be_granted_leaves_what_serves(live: Live) -> None:
    eve = Person(live, "eve", 2)
    (eve.versions[0].folder / "adapter.gguf").write_bytes(b"torn")
    switch = eve.wish(eve.versions[0])
    assert switch.state == "refused"
    assert "has changed since it was staged" in (switch.reason or "")
    assert eve.served() == "v2"
    assert live.store.updates.active_version(eve.user.adapter.id).id == eve.versions[1].id


def test_what_was_staged_from_another_version_does_not_undo_the_choice(live: Live) -> None:
    """A rollback while the next version is about to come in: its samples wait again."""
    dan = Person(live, "dan", 2)
    base = base_of(live.services.model_path, live.services.folder.cache)
    store = live.store
    with store.transaction():  # the server can't take it before the wish is there
        late = trained(live.services.folder, store, dan.user, base, 9)
        store.lifecycle.ask(dan.user.adapter.id, dan.versions[0].id, "person", "test")
    ring(live.services.folder.server_bell)
    until(lambda: store.updates.version(late.id).state == "rejected", 20)
    until(lambda: dan.served() == "v1", 20)
    assert store.signals.counts(dan.user.adapter.id) == {"used": 2, "waiting": 1}
    assert store.verify() == []


def test_a_version_that_is_being_asked_is_not_pruned_and_a_pruned_one_is_not_asked(live: Live) -> None:
    """A8: requests for old versions while those go: each is answered by its version, or told that it is gone."""
    kim = Person(live, "kim", 4)
    wrong: list[str] = []
    answered: list[int] = []

    def ask() -> None:
        for _ in range(25):
            for number in (1, 2, 3):
                response = live.chat("hi", f"clawd@kim:v{number}", {"Authorization": f"Bearer {kim.key}"}, max_tokens=3)
                answered.append(response.status_code)
                if response.status_code not in (200, 404, 409):
                    wrong.append(response.text)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: answered.count(200) > 5, 20)
    try:
        gone: list[Version] = []
        while any(thread.is_alive() for thread in threads):
            for version in live.store.lifecycle.prune(0):
                gone.append(version)
                for file in version.folder.iterdir():
                    file.unlink()
    finally:
        for thread in threads:
            thread.join()
    assert wrong == []
    assert {version.number for version in gone} == {1, 2}  # 3 is what the active one was made from
    assert kim.refused("clawd@kim:v1")[0] == 404
    assert kim.served(model="clawd@kim:v3") == "v3"
    assert live.store.verify() == []


class TestRestart:
    def test_the_choice_and_an_unanswered_wish_survive(self, tmp_path: Path, tiny_model: Path) -> None:
        with serving(tmp_path, tiny_model) as live:
            person = Person(live, "una", 3)
            assert person.wish(person.versions[0]).state == "done"
            key = person.key
        with serving(tmp_path, tiny_model) as live:
            person.live = live
            assert person.served() == "v1"
        with live.store.__class__(live.services.folder.database) as store:
            store.lifecycle.ask(person.user.adapter.id, person.versions[1].id, "learner", "test")
        with serving(tmp_path, tiny_model) as live:
            person.live, person.key = live, key
            until(lambda: person.served() == "v2", 20)


def test_another_base_refuses_the_adapter_by_name_until_its_own_is_back(tmp_path: Path, tiny_model: Path) -> None:
    from tests.tiny_gguf import write_tiny_model

    other = write_tiny_model(tmp_path / "other.gguf", seed=5)
    home = tmp_path / "home"
    with serving(home, tiny_model) as live:
        person = Person(live, "ola", 2)
        ours = live.services.versions.base_fingerprint[:12]
    with serving(home, other) as live:
        person.live = live
        theirs = live.services.versions.base_fingerprint[:12]
        assert person.served() == "base"
        for model in ("clawd@ola", "clawd@ola:v2", "clawd@ola:v1"):
            status, message = person.refused(model)
            assert status == 409, message
            assert f"another model file ({ours}) than the one that is served ({theirs})" in message
        told = live.http.get("/clawd/v1/status", headers={"Authorization": f"Bearer {person.key}"}).json()
        mine = next(adapter for adapter in told["adapters"] if adapter["name"] == "ola")
        assert mine["active_version"] is None
        assert theirs in mine["waits_for"]
        switch = person.wish(person.versions[0])
        assert switch.state == "refused"
        assert "another model file" in (switch.reason or "")
    with serving(home, tiny_model) as live:
        person.live = live
        assert person.served() == "v2"
        assert person.served(model="clawd@ola:v1") == "v1"


def test_shared_adapters_answer_and_others_are_refused(live: Live) -> None:
    """E14."""
    people = live.store.people
    sam, tim = Person(live, "sam", 1), Person(live, "tim", 1)
    assert tim.refused("clawd@sam")[0] == 403
    people.share(sam.user.adapter, tim.user)
    assert tim.served(model="clawd@sam") == "v1"
    project = people.create_adapter("project", ["tim"])
    assert tim.served(model="clawd@project") == "base"
    assert sam.refused("clawd@project")[0] == 403
    listed = live.openai(tim.key).models.list()
    assert {"clawd@tim", "clawd@sam", "clawd@sam:v1", "clawd@project"} <= {model.id for model in listed}
    people.unshare(sam.user.adapter, tim.user)
    assert tim.refused("clawd@sam")[0] == 403

    people.set_adapter(tim.user, sam.user.adapter)  # joint: one adapter learns from both
    turns = []
    for person in (sam, tim):
        answer = live.chat("hi", headers={"Authorization": f"Bearer {person.key}"}, max_tokens=2).json()
        turns.append(live.turn(answer["id"]))
    assert {turn.adapter_id for turn in turns} == {sam.user.adapter.id}
    assert len({turn.user_id for turn in turns}) == 2
    assert len({turn.session_id for turn in turns}) == 2  # what they say stays apart
    people.rename_adapter(project, "venture")
    status, message = tim.refused("clawd@project")
    assert (status, "'clawd@venture' now" in message) == (404, True)
    assert live.store.verify() == []


def test_status_names_what_the_next_update_waits_for(live: Live) -> None:
    from clawd.store.updates import BLOCKED, UNBLOCKED

    user, key = live.store.people.add("joy")

    def waits_for() -> str:
        told = live.http.get("/clawd/v1/status", headers={"Authorization": f"Bearer {key}"}).json()
        return next(adapter["waits_for"] for adapter in told["adapters"] if adapter["name"] == "joy")

    assert "16 more judged turns" in waits_for()
    live.store.event(BLOCKED, user.adapter.id, reason='10 minutes without a request (learn.when = "idle")')
    assert waits_for() == '10 minutes without a request (learn.when = "idle")'
    live.store.lifecycle.halt(user.adapter.id, "3 updates in a row came to nothing")
    assert waits_for() == "a look at it, then `clawd adapter resume joy`: 3 updates in a row came to nothing"
    live.store.lifecycle.resume(user.adapter.id)
    live.store.event(UNBLOCKED, user.adapter.id)
    assert "16 more judged turns" in waits_for()


def test_a_version_in_doubt_is_brought_in_when_a_person_agrees(live: Live) -> None:
    ivy = Person(live, "ivy", 1)
    folder, store = live.services.folder, live.store
    base = base_of(live.services.model_path, folder.cache)
    doubted = trained(folder, store, ivy.user, base, 7, doubt="The gate objects to version 2: it babbles.")
    assert ivy.wish(ivy.versions[0]).state == "done"  # the server has looked, and left it alone
    assert (store.updates.version(doubted.id).state, ivy.served()) == ("staged", "v1")
    told = live.http.get("/clawd/v1/status", headers={"Authorization": f"Bearer {ivy.key}"}).json()
    (facts,) = [adapter for adapter in told["adapters"] if adapter["name"] == "ivy"]
    assert facts["waits_for"] == (
        "your word, `clawd adapter accept ivy` or `refuse`: The gate objects to version 2: it babbles."
    )
    store.updates.accept(doubted.id)
    ring(folder.server_bell)
    until(lambda: store.updates.version(doubted.id).state == "active", 20)
    until(lambda: ivy.served() == "v2", 20)
