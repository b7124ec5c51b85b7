"""An experiment on real daemons with a tiny model, and going on after a stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clawd.bench.personalize.figures import report
from clawd.bench.personalize.record import Records, RunRecord, require_same
from clawd.bench.personalize.run import Experiment, Plan
from clawd.bench.personalize.users.persona import ScriptedVoice
from clawd.errors import BenchFailed
from clawd.model.embedded import embedded_model_path
from tests.bench.personalize.records import record
from tests.tiny_gguf import write_tiny_model


def plan(folder: Path, **changes: object) -> Plan:
    told = Plan(
        model=write_tiny_model(folder / "tiny.gguf", context=4096),
        out=folder / "out",
        arms=["memory"],
        users=["teacher"],
        seeds=[0],
        sessions=3,
        voice=ScriptedVoice(),
        base_replies=2,
        neutral_prompts=2,
    )
    return replace(told, **changes)  # type: ignore[arg-type]


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    first = plan(tmp_path)
    steps: list[str] = []
    base, records = Experiment(first, steps.append).run()
    (made,) = records
    assert [session.answered_by for session in made.sessions] == ["base"] * 3
    assert all(len(session.exchanges) == 3 for session in made.sessions)  # random words please nobody
    assert len(made.reply_logprobs) == 3
    assert made.drift == {}
    assert report("bench", base, records, ["teacher"]).rows

    said: list[str] = []
    assert Experiment(first, said.append).run() == (base, records)
    assert said == []

    with pytest.raises(BenchFailed, match="other conditions"):
        Experiment(plan(tmp_path, sessions=4), said.append).run()
    with pytest.raises(BenchFailed, match="other conditions"):
        Experiment(plan(tmp_path, settings=["--learn.learning_rate", "0.1"]), said.append).run()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.e2e
def test_learning_is_measured_per_version(tmp_path: Path) -> None:
    settings = ["--learn.samples_per_update", "4", "--learn.loss.negative_weight", "0.1"]
    users = ["student", "teacher"]
    asked = plan(tmp_path, model=embedded_model_path(), arms=["joint"], users=users, settings=settings)
    base, (made,) = Experiment(asked, lambda _: None).run()
    assert [(session.user, session.number) for session in made.sessions] == [
        (user, number) for number in range(3) for user in ("student", "teacher")
    ]
    versions = [session.answered_by for session in made.sessions]
    assert versions[0] == "base"
    assert versions[-1] != "base"
    assert set(made.drift) == set(versions) - {"base"}
    assert all(drift.neutral_kl > 0 for drift in made.drift.values())
    assert {update["number"] for update in made.updates if update["state"] == "active"} >= {
        int(name.removeprefix("v")) for name in made.drift
    }
    assert sum(reading.reactions for reading in made.judge.values()) == sum(
        len(each.exchanges) for each in made.sessions
    )
    assert base.users["student"].replies == 2


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    records = Records(tmp_path)
    path = records.path("joint", ["student", "ta"], 2)
    made = record("joint", 2, {"student": "+-o", "ta": "---"})
    assert records.read(path, RunRecord) is None
    records.keep(path, made)
    assert records.read(path, RunRecord) == made


def test_a_damaged_record_is_told(tmp_path: Path) -> None:
    records = Records(tmp_path)
    path = records.path("hybrid", ["ta"], 0)
    path.parent.mkdir(parents=True)
    path.write_text('{"arm": "hyb')
    with pytest.raises(BenchFailed, match="remove it"):
        records.read(path, RunRecord)


def test_conditions_that_differ_are_told() -> None:
    require_same(Path("x"), 1, 1)
    with pytest.raises(BenchFailed, match="--out"):
        require_same(Path("x"), 1, 2)
