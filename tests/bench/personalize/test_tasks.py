"""The generator of word problems: answers that are right, variety, and problems from a file."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from clawd.bench.personalize.tasks import Task, generate, read_tasks
from clawd.bench.personalize.templates import TEMPLATES, Template
from clawd.errors import BenchFailed


def result(template: Template, values: dict[str, int]) -> float:
    """The answer in Python's own arithmetic."""
    known: dict[str, float] = dict(values)
    for number, step in enumerate(template.steps, start=1):
        known[f"r{number}"] = eval(step, {}, dict(known))
    return known[f"r{len(template.steps)}"]


def test_there_are_enough_templates_and_no_two_are_alike() -> None:
    assert len({template.text for template in TEMPLATES}) == len(TEMPLATES) >= 25


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.text[:30])
def test_every_corner_of_a_template_has_a_whole_answer_above_zero(template: Template) -> None:
    corners = product(*template.numbers.values())
    for corner in corners:
        answer = result(template, dict(zip(template.numbers, corner, strict=True)))
        assert answer > 0
        assert answer == int(answer)


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_those_of_the_steps(seed: int) -> None:
    tasks = generate(seed, 60)
    for task in tasks:
        for step in task.steps:
            left, right = step.split(" = ")
            assert eval(left) == int(right)
        assert task.steps[-1].endswith(f"= {task.answer}")
        assert "{" not in task.question
    assert len({task.question for task in tasks}) == len(tasks)


def test_a_seed_gives_the_same_problems_and_another_seed_others() -> None:
    assert generate(3, 10) == generate(3, 10)
    assert generate(3, 10) != generate(4, 10)


def test_each_template_comes_up_before_any_does_again() -> None:
    starts = [task.steps[0].split()[1] + str(len(task.steps)) for task in generate(0, len(TEMPLATES))]
    assert len(starts) == len(TEMPLATES)
    assert len({len(task.question) // 5 for task in generate(0, len(TEMPLATES))}) > 5


def test_names_and_numbers_of_a_task() -> None:
    task = Task("Rosa has 1,200 coins, gives Ben 30 and loses 5. How many are left?", "1165", ("30 + 5 = 35",))
    assert task.names == {"Rosa", "Ben"}
    assert task.numbers == {"1200", "30", "5", "35", "1165"}


def test_problems_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(
        json.dumps([{"question": f"What is {n} plus 1?", "ground_truth_answer": str(n + 1)} for n in range(9)])
    )
    tasks = read_tasks(path, 1, 5)
    assert len(set(tasks)) == 5
    assert all(task.steps == () for task in tasks)
    assert read_tasks(path, 1, 5) == tasks
    with pytest.raises(BenchFailed, match="holds 9 problems"):
        read_tasks(path, 1, 10)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"question": "x"}]', "null"])
def test_a_file_in_another_form_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(text)
    with pytest.raises(BenchFailed):
        read_tasks(path, 0, 1)
