"""An update stands back for people: how long, for whom, and that nothing but its time changes."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from clawd.config import LearnSettings
from clawd.errors import UpdateRefused
from clawd.learner.job import MANIFEST_FILE, RESULT_FOLDER, Manifest, Outcome
from clawd.learner.train.batch import sequence_of
from clawd.learner.train.course import Course
from clawd.learner.train.courtesy import Courtesy
from clawd.learner.train.forward import micro_batches
from clawd.learner.train.probe import Asked, Question, answer
from clawd.learner.train.steps import Batch, accumulate, score_and_begin
from clawd.learner.train.update import run
from clawd.presence import VARIABLE, Presence
from tests.learner.test_gate import LENIENT, PROBES
from tests.learner.test_update import SETTINGS
from tests.learner.test_update_forward import make_policy
from tests.learner.tiny_base import make_sample, mixed_samples, write_job
from tests.test_presence import HOLDS

PATIENCE_S = 60.0
GATED = LearnSettings.model_validate(SETTINGS.model_dump() | {"gate": {"answer_tokens": 16, **LENIENT}})


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    return tmp_path / "presence"


@contextmanager
def present(pipe: Path) -> Iterator[None]:
    """Somebody is being answered all the time."""
    presence = Presence(pipe)
    presence.tell(True)
    yield
    presence.close()


@contextmanager
def coming_and_going(pipe: Path) -> Iterator[None]:
    """Somebody is being answered half of the time."""
    presence, over = Presence(pipe), threading.Event()

    def toggle() -> None:
        here = True
        while not over.wait(0.01):
            presence.tell(here)
            here = not here

    thread = threading.Thread(target=toggle)
    thread.start()
    yield
    over.set()
    thread.join()
    presence.close()


class TestPauses:
    def test_nobody_is_waited_for_who_is_not_there(self, pipe):
        for courtesy in (Courtesy(), Courtesy(pipe, 60.0)):
            courtesy.give_way()
            assert courtesy.paused_s == 0

    def test_all_pauses_together_are_bounded(self, pipe):
        courtesy = Courtesy(pipe, 0.2)
        with present(pipe):
            courtesy.give_way()
            assert courtesy.paused_s >= 0.2
            assert courtesy.left_s == 0
            paused_s = courtesy.paused_s
            courtesy.give_way()
            assert courtesy.paused_s == paused_s

    def test_what_another_process_paused_counts(self, pipe):
        courtesy = Courtesy(pipe, 10.0)
        courtesy.count(9.75)
        assert courtesy.left_s == 0.25
        with present(pipe):
            courtesy.give_way()
        assert courtesy.left_s == 0

    def test_a_server_that_was_killed_is_not_waited_for(self, pipe):
        process = subprocess.Popen([sys.executable, "-c", HOLDS, str(pipe)], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"present\n"
            courtesy = Courtesy(pipe, PATIENCE_S)
            threading.Timer(0.1, process.send_signal, (signal.SIGKILL,)).start()
            courtesy.give_way()
            assert 0 < courtesy.paused_s < PATIENCE_S
        finally:
            process.kill()
            process.communicate()

    def test_a_pipe_that_cannot_be_opened_costs_the_pauses_only(self, tmp_path, caplog):
        courtesy = Courtesy(tmp_path / "no-folder" / "presence", 60.0)
        courtesy.give_way()
        assert courtesy.paused_s == 0
        assert "no pause is made" in caplog.text

    def test_as_the_settings_say(self, pipe, monkeypatch):
        assert Courtesy.of(LearnSettings()).left_s == 0  # nobody named a pipe
        monkeypatch.setenv(VARIABLE, str(pipe))
        assert Courtesy.of(LearnSettings(pause_when_busy=True, max_pause_s=7)).left_s == 7
        assert Courtesy.of(LearnSettings(pause_when_busy=False)).left_s == 0


class TestBlocks:
    def gradient(self, policy) -> dict[str, torch.Tensor]:
        samples = mixed_samples()
        groups = micro_batches([sequence_of(sample).length for sample in samples], 64)
        scored, _ = score_and_begin(policy, samples, groups, SETTINGS)
        accumulate(policy, Batch(scored, groups), SETTINGS)
        return {name: weight.grad.clone() for name, weight in policy.trainable().items()}

    def test_each_is_a_place_to_pause_forward_and_backward_and_no_number_changes(self, tmp_path):
        policy = make_policy(tmp_path)
        expected = self.gradient(policy)
        calls: list[None] = []
        policy.before_each_layer(lambda: calls.append(None))
        with torch.no_grad():
            policy.hidden(torch.arange(1, 9)[None])
        assert len(calls) == 2  # blocks
        calls.clear()
        policy.hidden(torch.arange(1, 9)[None]).sum().backward()
        assert len(calls) == 3  # what goes into the first block is the frozen base's
        found = self.gradient(policy)
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.fixture
def update(tmp_path, tiny_model):
    """An update of the tiny model, gate included; its outcome and its manifest."""

    def do(settings: LearnSettings = GATED) -> tuple[Outcome, Manifest]:
        folder = tmp_path / f"job-{len(list(tmp_path.glob('job-*')))}"
        samples = [make_sample(n, (1, -1)[n % 2], hints=n % 3) for n in range(8)]
        write_job(folder, tiny_model, tmp_path / "cache", samples, settings)
        job = json.loads((folder / "job.json").read_text()) | {"probes": PROBES.model_dump()}
        (folder / "job.json").write_text(json.dumps(job))
        outcome = run(folder)
        assert outcome.state == "staged", outcome.reason
        return outcome, Manifest.model_validate_json((folder / RESULT_FOLDER / MANIFEST_FILE).read_text())

    return do


class TestUpdate:
    def test_the_same_bytes_with_pauses_and_without(self, update, pipe, monkeypatch):
        plain, of_plain = update()
        assert plain.metrics["train/paused_s"] == 0
        monkeypatch.setenv(VARIABLE, str(pipe))
        with coming_and_going(pipe):
            paused, of_paused = update()
        assert paused.metrics["train/paused_s"] > 0
        assert of_paused.sha256 == of_plain.sha256
        told = ("gate/", "effect/", "drift/", "validate/")
        assert {name: value for name, value in paused.metrics.items() if name.startswith(told)} == {
            name: value for name, value in plain.metrics.items() if name.startswith(told)
        }

    def test_it_ends_though_people_never_rest(self, update, pipe, monkeypatch):
        monkeypatch.setenv(VARIABLE, str(pipe))
        with present(pipe):
            outcome, manifest = update(GATED.model_copy(update={"max_pause_s": 0.5}))
        assert outcome.metrics["train/paused_s"] == manifest.metrics["train/paused_s"] >= 0.5

    def test_not_if_the_settings_say_no(self, update, pipe, monkeypatch):
        monkeypatch.setenv(VARIABLE, str(pipe))
        with present(pipe):
            outcome, _ = update(GATED.model_copy(update={"pause_when_busy": False}))
        assert outcome.metrics["train/paused_s"] == 0


def test_a_pause_is_in_no_phase_and_told_of_a_failed_one_too(pipe):
    course = Course(courtesy=Courtesy(pipe, 2.0))
    with present(pipe), pytest.raises(UpdateRefused), course.phase("load"), course.phase("score"):
        course.courtesy.count(0.5)  # as a process does that answers for the gate
        raise UpdateRefused("no signal")
    assert course.outcome("refused").metrics["train/paused_s"] >= 2.0
    assert course.seconds == {}
    course = Course(courtesy=Courtesy(pipe, 1.0))
    with course.phase("score"), present(pipe):
        course.courtesy.give_way()
    assert course.seconds["score"] < course.courtesy.paused_s


def test_the_gates_answers_are_given_between_those_to_people(tiny_model, pipe):
    question = Question(base=tiny_model, asked=[Asked(adapter=None, prompts=PROBES.neutral)], most=16, threads=1)
    plain = answer(question)
    assert plain.paused_s == 0
    with present(pipe):
        paused = answer(question.model_copy(update={"presence": pipe, "max_pause_s": 0.2}))
    assert paused.paused_s >= 0.2
    assert paused.answers == plain.answers
