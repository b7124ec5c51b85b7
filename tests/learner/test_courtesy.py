"""An update stands back for people: how long, for whom, and that nothing but its time changes."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clawd.config import LearnSettings
from clawd.errors import UpdateRefused
from clawd.learner.job import MANIFEST_FILE, RESULT_FOLDER, Manifest, Outcome
from clawd.learner.train.course import Course
from clawd.learner.train.courtesy import SIGNAL, Courtesy
from clawd.learner.train.update import run
from clawd.presence import VARIABLE, Presence
from tests.learner.test_gate import LENIENT, PROBES
from tests.learner.test_update import SETTINGS
from tests.learner.tiny_base import make_sample, write_job
from tests.test_presence import HOLDS

PATIENCE_S = 60.0
WAITS = """
import os, pathlib, sys, time
from clawd.lifeline import die_with_parent
die_with_parent()
folder = pathlib.Path(sys.argv[1])
(folder / "aside").write_text(str(os.getpid()))
(folder / "aside").rename(folder / "pid")
while not (folder / "go").exists():
    time.sleep(0.01)
print(sys.stdin.read(), end="")
"""
ASKS = """
import pathlib, sys
from clawd.learner.train.courtesy import Courtesy
courtesy = Courtesy(pathlib.Path(sys.argv[1]), 60.0)
with courtesy.watching():
    courtesy.run([sys.executable, "-c", *sys.argv[2:]], 60.0)
"""
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


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.01)


def wait_for_text(path: Path) -> str:
    until(path.exists)
    return path.read_text()


def state_of(pid: int) -> str | None:
    """As Linux tells it: T stopped, Z ended; none: it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


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


class TestWatching:
    def test_whatever_is_done_meanwhile_is_paused(self, pipe):
        courtesy = Courtesy(pipe, PATIENCE_S)
        before = signal.getsignal(SIGNAL)
        with coming_and_going(pipe), courtesy.watching():
            until(lambda: courtesy.paused_s > 0.2)  # in the middle of this loop
        assert signal.getsignal(SIGNAL) == before
        assert not any(thread.name == "courtesy" for thread in threading.enumerate())
        paused_s = courtesy.paused_s
        with present(pipe):
            sum(range(10**6))
        assert courtesy.paused_s == paused_s

    def test_nobody_is_waited_for_any_more_when_the_pauses_are_used_up(self, pipe):
        courtesy = Courtesy(pipe, 0.2)
        with present(pipe), courtesy.watching():
            until(lambda: courtesy.left_s == 0)
            until(lambda: not any(thread.name == "courtesy" for thread in threading.enumerate()))
        assert courtesy.paused_s >= 0.2

    def test_a_child_process_stands_still_too(self, pipe, tmp_path):
        courtesy, states = Courtesy(pipe, PATIENCE_S), []

        def observe() -> None:
            pid = int(wait_for_text(tmp_path / "pid"))
            with present(pipe):
                until(lambda: state_of(pid) == "T")
                (tmp_path / "go").touch()
                time.sleep(0.2)  # it would end now
                states.append(state_of(pid))

        thread = threading.Thread(target=observe)
        thread.start()
        with courtesy.watching():
            printed = courtesy.run([sys.executable, "-c", WAITS, str(tmp_path)], PATIENCE_S, "asked")
        thread.join()
        assert (printed, states) == ("asked", ["T"])

    def test_a_child_that_fails_or_takes_too_long(self):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            Courtesy().run([sys.executable, "-c", "raise SystemExit('why')"], PATIENCE_S)
        assert (failed.value.returncode, failed.value.stderr) == (1, "why\n")
        with pytest.raises(subprocess.TimeoutExpired):
            Courtesy().run([sys.executable, "-c", "import time; time.sleep(600)"], 0.2)

    def test_a_child_that_stands_still_ends_with_its_parent(self, pipe, tmp_path):
        command = [sys.executable, "-c", ASKS, str(pipe), WAITS, str(tmp_path)]
        parent = subprocess.Popen(command)
        try:
            pid = int(wait_for_text(tmp_path / "pid"))
            with present(pipe):
                until(lambda: state_of(pid) == "T")
                parent.kill()
                parent.wait()
                until(lambda: state_of(pid) in (None, "Z"))
        finally:
            parent.kill()
            parent.wait()


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
    course = Course(courtesy=Courtesy(pipe, 1.0))
    with course.phase("score"), present(pipe):
        course.courtesy.give_way()
    assert course.seconds["score"] < course.courtesy.paused_s
    course = Course(courtesy=Courtesy(pipe, 0.2))
    with present(pipe), pytest.raises(UpdateRefused), course.phase("score"):
        course.courtesy.give_way()
        raise UpdateRefused("no signal")
    assert course.seconds == {}
    assert course.outcome("refused").metrics["train/paused_s"] >= 0.2
