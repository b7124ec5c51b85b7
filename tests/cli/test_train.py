"""train --dry-run, why, learn curve: read from the store, nothing written. (`train --now`: test_adapters_live.)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawd.cli.learn import sparkline
from clawd.learner.job import Outcome
from clawd.model.fingerprint import fingerprint
from tests.cli.command import clawd
from tests.learner.parts import ScriptedBackend, ServedModel, World


class Told(World):
    """A folder with conversations about the tiny model, on which commands run."""

    def __init__(self, root: Path, model: Path) -> None:
        super().__init__(root)
        self.model = model
        self.base = fingerprint(model, self.data.cache)

    def run(self, *arguments: str, status: int = 0, environment: dict[str, str] | None = None) -> str:
        done = clawd(self.data.root, *arguments, CLAWD_MODEL__PATH=str(self.model), **(environment or {}))
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def contents(self) -> list[str]:
        return list(self.store._connection.db.conn.iterdump())

    def update(self, outcome: Outcome | None = None) -> None:
        """One update of two samples: served, or as `outcome` says."""
        backend = ScriptedBackend()
        updates = self.updates(backend, ServedModel(self.model, self.base, "tiny"))
        self.samples(2, hint="Mention the oven.")
        updates.tick()
        if outcome is None:
            backend.succeed()
        else:
            backend.end(outcome)
        updates.tick()
        for version in self.store.updates.staged_versions():
            self.store.updates.activate(version.id)


@pytest.fixture
def told(tmp_path: Path, tiny_model: Path) -> Iterator[Told]:
    made = Told(tmp_path / "home", tiny_model)
    yield made
    assert made.store.verify() == []
    made.store.close()


class TestDryRun:
    def test_shows_what_would_be_learnt_and_writes_nothing(self, told: Told) -> None:
        told.samples(2, hint="Mention the oven.")
        told.samples(1)
        told.base = "c" * 64
        told.samples(4)  # of another model file: they wait for it
        before = told.contents()
        facts = json.loads(told.run("train", "--dry-run", "--json"))
        shown = told.run("train", "--dry-run")
        assert told.contents() == before
        assert (facts["samples"], facts["samples_waiting"], facts["samples_needed"]) == (3, 3, 16)
        assert (facts["rewards"], facts["hints"], facts["from"]) == ({"-1": 3}, 2, "the bare base")
        assert facts["prompt_tokens"] == sum(lesson["prompt_tokens"] for lesson in facts["lessons"]) > 0
        assert "13 more judged turns with a signal, and a daemon" in facts["waits_for"]
        for part in ("3 of 3 waiting samples", "3× -1", "How do I bake bread?", "Mention the oven.", "clawd start"):
            assert part in shown, part

    def test_says_what_stands_in_the_way(self, told: Told) -> None:
        told.store.lifecycle.halt(told.user.adapter.id, "3 updates in a row came to nothing")
        assert "clawd adapter resume default" in told.run("train", "--dry-run")

    def test_says_what_memory_it_would_take(self, told: Told) -> None:
        told.samples(2, hint="Mention the oven.")
        memory = json.loads(told.run("train", "--dry-run", "--json", environment={"CLAWD_LEARN__DEVICE": "cpu"}))[
            "memory"
        ]
        assert sum(memory["parts_mb"].values()) == pytest.approx(memory["needed_mb"], abs=len(memory["parts_mb"]))
        assert (memory["checkpointing"], memory["problem"]) == (False, None)
        assert memory["free_mb"] > 0
        bounded = {"CLAWD_LEARN__DEVICE": "cpu", "CLAWD_LEARN__MAX_MEMORY_MB": "200"}
        shown = told.run("train", "--dry-run", environment=bounded)
        assert "It is computed to need" in shown and "not enough memory for an update" in shown
        elsewhere = told.run("train", "--dry-run", "--json", environment={"CLAWD_LEARN__DEVICE": "cuda:0"})
        assert json.loads(elsewhere)["memory"] is None

    def test_now_needs_a_daemon(self, told: Told) -> None:
        told.samples(1)
        assert "No daemon runs" in told.run("train", "--now", status=3)
        assert not told.store.lifecycle.is_update_asked(told.user.adapter.id)
        assert "either --now or --dry-run" in told.run("train", status=2)


class TestWhy:
    def test_names_turns_votes_and_hints(self, told: Told) -> None:
        told.update()
        shown = told.run("why", "default:v1")
        for part in (
            "clawd@default:v1, active: trained from fresh weights on 2 samples",
            "of default, -1",
            "asked:    How do I bake bread?",
            "answered: Bread is made of flour",
            "followed: No.",
            "-1 by rules: no",
            "hint:     Mention the oven.",
        ):
            assert part in shown, part
        facts = json.loads(told.run("why", "clawd@default:v1", "--json"))
        turns = {told.store.signals.get(lesson["sample_id"]).turn_id for lesson in facts["lessons"]}
        assert turns == {lesson["turn_id"] for lesson in facts["lessons"]}
        assert facts["metrics"] == {"train/loss": 0.25}

    def test_of_a_pruned_one_too(self, told: Told) -> None:
        for _ in range(3):
            told.update()
        told.store.lifecycle.prune(0)
        assert "pruned (older than the 0" in told.run("why", "default:v1")
        assert "no version 9" in told.run("why", "default:v9", status=1)


class TestCurve:
    def test_shows_and_draws_what_was_measured(self, told: Told, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        told.update()
        told.update(Outcome(state="refused", reason="too far", metrics={"train/loss": 0.75, "effect/kl_old": 0.5}))
        told.update()
        png = tmp_path / "curve.png"
        shown = told.run("learn", "curve", "--png", str(png))
        assert png.read_bytes().startswith(b"\x89PNG")
        for part in ("train/loss", "▁█▁", "0.75", "·▅·", "mean reward", "update 2 refused: too far"):
            assert part in shown, part
        facts = json.loads(told.run("learn", "curve", "default", "--json"))
        assert [(one["number"], one["state"]) for one in facts] == [(1, "active"), (2, "refused"), (2, "active")]
        assert "mean reward" not in told.run("learn", "curve", "--metric", "train/loss")

    def test_nothing_to_show(self, told: Told) -> None:
        assert "no update yet" in told.run("learn", "curve", status=1)
        told.update()
        assert "There is: train/loss" in told.run("learn", "curve", "--metric", "x/y", status=1)

    @pytest.mark.parametrize(
        ("values", "line"),
        [
            ([0.0, 1.0], "▁█"),
            ([3.0, 3.0], "▅▅"),
            ([1.0, None, -1.0], "█·▁"),
            ([float(number) for number in range(8)], "▁▂▃▄▅▆▇█"),
        ],
    )
    def test_sparkline(self, values: list[float | None], line: str) -> None:
        assert sparkline(values) == line

    def test_a_sparkline_shows_the_newest(self) -> None:
        values: list[Any] = [9.0, *([0.0] * 59), 1.0]
        assert sparkline(values) == "▁" * 59 + "█"


def test_drawing_without_matplotlib_names_the_extra(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path; from clawd.cli.learn import draw; from clawd.errors import ClawdError\n"
        "try: draw(Path('x.png'), 'a', [], {'k': [1.0]})\n"
        "except ClawdError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "clawd[bench]" in done.stdout
