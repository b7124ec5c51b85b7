"""What the learner hands the gate, through the real store: whose words, and none that this update trains on."""

from pathlib import Path

import pytest

from clawd.config import GateSettings
from clawd.learner.probes import LONGEST_OWN, PROMPTS
from tests.learner.parts import ScriptedBackend, World, words


@pytest.fixture
def world(tmp_path: Path):
    made = World(tmp_path)
    yield made
    assert made.store.verify() == []
    made.store.close()


def own_of(world: World, **gate: object) -> list[str]:
    """The own messages in the job of the next update."""
    backend = ScriptedBackend()
    world.samples(2)  # "How do I bake bread?"
    world.updates(backend, gate=GateSettings(**gate)).tick()
    return [words(ids) for ids in backend.job().probes.own]


def prompt(text: str) -> str:
    return f"<user>{text}|"


def test_recent_first_messages_newest_first_each_once(world):
    for text in ("Plan my week.", "What is rust?", "Plan my week.", "Fix my bike."):
        world.turn(asked=text)
    assert own_of(world) == [prompt(text) for text in ("Fix my bike.", "Plan my week.", "What is rust?")]


def test_not_what_the_batch_answers(world):
    world.turn(asked="How do I bake bread?")  # another conversation with the words of the batch's
    assert own_of(world) == []


def test_not_another_users_nor_another_models_nor_a_pasted_page(world):
    anna, _ = world.store.people.add("anna")
    world.turn(asked="Anna's secret.", user=anna)
    world.turn(asked="Of the bare base.", adapter=False)
    world.turn(asked="x" * (LONGEST_OWN + 1))
    world.base, before = "c" * 64, world.base
    world.turn(asked="Of another model.")
    world.base = before
    assert own_of(world) == []


def test_as_many_as_the_settings_say(world):
    for number in range(6):
        world.turn(asked=f"Question {number}.")
    assert len(own_of(world, own_answers=3)) == 3


def test_the_bundled_ones_are_rendered_as_the_server_does_it(world):
    backend = ScriptedBackend()
    world.samples(2)
    world.updates(backend, gate=GateSettings(answers=3)).tick()
    assert [words(ids) for ids in backend.job().probes.neutral] == [prompt(text) for text in PROMPTS[:3]]
