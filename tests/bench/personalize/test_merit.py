"""From records to the figure of merit, the goals and the plots."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bench.personalize.figures import report
from clawd.bench.personalize.merit import curves, merit, sessions_until
from clawd.bench.personalize.plot import draw, running_mean
from clawd.bench.personalize.scoring import Drift
from tests.bench.personalize.records import FLOOR, base, record

USERS = ("student", "ta", "teacher")


def won(letters: str) -> list[bool]:
    return [letter == "+" for letter in letters]


@pytest.mark.parametrize(
    ("letters", "sessions"),
    [("+++", 3), ("-+++", 4), ("++-++-+++", 9), ("++-++-++", None), ("", None), ("--+++---", 5)],
)
def test_sessions_until_three_in_a_row(letters: str, sessions: int | None) -> None:
    assert sessions_until(won(letters)) == sessions


def test_merit_is_the_median_over_seeds_and_never_counts_as_one_session_more() -> None:
    found = merit([won("+++------"), won("---+++---"), won("---------")])
    assert (found.median, found.lowest, found.highest) == (6, 3, 10)
    assert found.told() == "6 (3–>9)"


def test_three_successes_over_a_reply_that_is_no_answer_do_not_count() -> None:
    (curve,) = curves(record("hybrid", 0, {"ta": "++o+++"}), base("ta"))
    assert curve.outcomes[2] == "not an answer"
    assert sessions_until(curve.successes) == 6


def test_a_reply_that_the_base_finds_impossible_is_no_answer() -> None:
    made = record("hybrid", 0, {"ta": "+++"})
    made = made.model_copy(update={"reply_logprobs": [FLOOR, FLOOR - 0.01, -1.0]})
    (curve,) = curves(made, base("ta"))
    assert curve.outcomes == ("success", "not an answer", "success")


@pytest.mark.parametrize(
    ("drift", "within"),
    [
        (Drift(neutral_kl=0.05, perplexity_ratio=1.05), True),
        (Drift(neutral_kl=0.051, perplexity_ratio=1.0), False),
        (Drift(neutral_kl=0.0, perplexity_ratio=1.051), False),
    ],
)
def test_a_version_beyond_the_drift_bound_wins_nothing(drift: Drift, within: bool) -> None:
    made = record("hybrid", 0, {"ta": "++++"}, ["base", "v1", "v1", "v1"], {"v1": drift})
    (curve,) = curves(made, base("ta"))
    assert curve.within_bound == [True, within, within, within]


def test_users_of_a_joint_run_are_told_apart() -> None:
    made = record("joint", 0, {"student": "+++", "ta": "---"})
    found = {curve.user: curve.successes for curve in curves(made, base("student", "ta"))}
    assert found == {"student": [True] * 3, "ta": [False] * 3}


def test_goals_from_rows() -> None:
    drift = {"v1": Drift(neutral_kl=0.02, perplexity_ratio=1.01)}
    by = ["base"] * 3 + ["v1"] * 5
    letters = {"hybrid": "---+++++", "grpo": "-----+++", "opd": "--------", "hint-random": "----+++-"}
    records = [record(arm, 0, {user: told}, by, drift) for arm, told in letters.items() for user in USERS]
    records.append(record("joint", 0, dict.fromkeys(USERS, "--+++---"), by, drift))
    told = report("bench", base(*USERS), records, USERS)
    goals = {goal.name: (goal.value, goal.ok) for goal in told.goals}
    assert goals == {
        "hybrid_sessions_to_three_in_a_row": (6, True),
        "joint_sessions_to_three_in_a_row": (5, True),
        "sessions_saved_over_grpo": (2, True),
        "sessions_saved_over_opd": (3, True),
        "sessions_saved_over_random_hint": (1, True),
        "hybrid_worst_neutral_kl": (0.02, True),
        "hybrid_worst_perplexity_ratio": (1.01, True),
        "highest_base_rate": (0.1, True),
    }
    judges = [row for row in told.rows if row.get("judge_of") == "ta"]
    assert [(row["reactions"], row["read_right"], row["corrections_with_hint"]) for row in judges] == [(50, 0.8, 0.8)]


def test_what_was_not_measured_is_a_missed_goal() -> None:
    told = report("bench", base("ta"), [record("none", 0, {"ta": "----"})], ["ta"])
    goals = {goal.name: goal for goal in told.goals}
    assert goals["hybrid_sessions_to_three_in_a_row"].value is None
    assert not goals["hybrid_worst_neutral_kl"].ok


def test_never_reached_misses_the_goal() -> None:
    told = report("bench", base("ta"), [record("hybrid", 0, {"ta": "-" * 15})], ["ta"])
    goal = told.goals[0]
    assert (goal.value, goal.ok) == (16, False)
    (row,) = [row for row in told.rows if row.get("arm") == "hybrid / ta"]
    assert row["three_in_a_row_within_drift"] == ">15 (>15–>15)"


def test_too_few_sessions_to_tell_meet_no_goal() -> None:
    told = report("bench", base("ta"), [record("hybrid", 0, {"ta": "-" * 12})], ["ta"])
    goal = told.goals[0]
    assert (goal.value, goal.ok) == (None, False)


def test_an_arm_that_never_comes_to_it_loses_against_one_that_does() -> None:
    records = [record("hybrid", 0, {"ta": "-+++--"}), record("grpo", 0, {"ta": "------"})]
    goals = {goal.name: goal.value for goal in report("bench", base("ta"), records, ["ta"]).goals}
    assert goals["sessions_saved_over_grpo"] == 3
    assert goals["sessions_saved_over_opd"] is None


def test_running_mean() -> None:
    assert running_mean([True, False, True, True, True, True]).tolist() == [1, 0.5, 2 / 3, 0.75, 0.8, 0.8]


def test_plot(tmp_path: Path) -> None:
    drift = {"v1": Drift(neutral_kl=0.02, perplexity_ratio=1.01)}
    records = [
        record("hybrid", seed, {user: "-+o+"}, ["base", "v1", "v1", "v1"], drift) for seed in (0, 1) for user in USERS
    ]
    records.append(record("none", 0, {"ta": "----"}))
    draw(base(*USERS), records, USERS, "bench", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
