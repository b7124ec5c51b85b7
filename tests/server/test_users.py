"""Users on one endpoint: keys, adapters, and that nothing crosses over (S7, E14)."""

from __future__ import annotations

import threading

import openai
import pytest

from tests.server.live import Live


@pytest.fixture(scope="module")
def keys(live: Live) -> dict[str, str]:
    return {name: live.store.people.add(name)[1] for name in ("ada", "bob")}


def test_a_key_names_its_user_and_a_wrong_one_nobody(live: Live, keys: dict[str, str]) -> None:
    reply = live.openai(keys["ada"]).chat.completions.create(
        model="clawd", messages=[{"role": "user", "content": "hi"}], max_tokens=1
    )
    assert live.turn(reply.id).user_id == live.store.people.named("ada").id
    with pytest.raises(openai.AuthenticationError):
        live.openai("clawd-wrong").models.list()
    assert live.http.get("/v1/models").status_code == 200  # without a key: `default`


def test_another_users_adapter_and_turns_are_out_of_reach(live: Live, keys: dict[str, str]) -> None:
    bob = live.openai(keys["bob"])
    with pytest.raises(openai.PermissionDeniedError):
        bob.chat.completions.create(model="clawd@ada", messages=[{"role": "user", "content": "hi"}], max_tokens=1)
    mine = bob.chat.completions.create(model="clawd@bob", messages=[{"role": "user", "content": "hi"}], max_tokens=1)
    headers = {"authorization": f"Bearer {keys['ada']}"}
    assert live.http.get(f"/clawd/v1/turns/{mine.id}", headers=headers).status_code == 403
    body = {"response_id": mine.id, "score": 1}
    assert live.http.post("/clawd/v1/feedback", json=body, headers=headers).status_code == 403
    assert "clawd@ada" not in [model.id for model in bob.models.list()]


def test_two_users_in_step_never_cross(live: Live, keys: dict[str, str]) -> None:
    results: dict[str, list[str]] = {name: [] for name in keys}

    def talk(name: str) -> None:
        client = live.openai(keys[name])
        messages: list = []
        for number in range(3):
            messages.append({"role": "user", "content": f"question {number}"})
            reply = client.chat.completions.create(model="clawd", messages=messages, temperature=0, max_tokens=6)
            messages.append({"role": "assistant", "content": reply.choices[0].message.content})
            results[name].append(reply.id)

    threads = [threading.Thread(target=talk, args=(name,)) for name in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, ids in results.items():
        user = live.store.people.named(name)
        turns = [live.turn(reply) for reply in ids]
        assert {turn.user_id for turn in turns} == {user.id}
        assert {turn.adapter_id for turn in turns} == {user.adapter.id}
        assert len({turn.session_id for turn in turns}) == 1
        assert [turn.state for turn in turns] == ["judging", "judging", "waiting"]
    assert live.store.verify() == []


def test_status_tells_a_user_of_their_own_adapters_and_the_owner_of_all(live: Live, keys: dict[str, str]) -> None:
    told = {
        name: live.http.get("/clawd/v1/status", headers={"authorization": f"Bearer {key}"})
        for name, key in keys.items()
    }
    assert [adapter["name"] for adapter in told["ada"].json()["adapters"]] == ["ada"]
    assert "bob" not in told["ada"].text
    assert str(live.services.model_path.parent) not in told["bob"].text
    owners = live.http.get("/clawd/v1/status").json()
    assert {"default", "ada", "bob"} <= {adapter["name"] for adapter in owners["adapters"]}
    assert owners["model"]["path"] == str(live.services.model_path)
