from __future__ import annotations

import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.presence import Presence, PresenceWatch

PATIENCE_S = 60.0
HOLDS = (
    "import pathlib, sys, time; from clawd.presence import Presence; "
    "Presence(pathlib.Path(sys.argv[1])).tell(True); print('present', flush=True); time.sleep(600)"
)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    return tmp_path / "presence"


@pytest.fixture
def watch(pipe: Path) -> Iterator[PresenceWatch]:
    made = PresenceWatch(pipe)
    yield made
    made.close()


def test_what_is_told_is_seen(pipe: Path, watch: PresenceWatch) -> None:
    assert not watch.present()
    presence = Presence(pipe)
    assert not watch.present()
    for _ in range(3):
        presence.tell(True)
        presence.tell(True)
        assert watch.present() and watch.present()
        presence.tell(False)
        presence.tell(False)
        assert not watch.present()
    presence.tell(True)
    presence.close()
    assert not watch.present()
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o600


def test_who_looks_late_sees_it_too(pipe: Path) -> None:
    presence = Presence(pipe)
    presence.tell(True)
    late = PresenceWatch(pipe)
    assert late.present()
    presence.close()
    assert not late.present()
    late.close()


def test_waiting_ends_with_the_presence_and_with_the_time(pipe: Path, watch: PresenceWatch) -> None:
    presence = Presence(pipe)
    presence.tell(True)
    assert not watch.wait_for_absence(0.05)
    timer = threading.Timer(0.1, presence.tell, (False,))
    timer.start()
    assert watch.wait_for_absence(PATIENCE_S)
    timer.join()
    assert not watch.present()


def test_one_that_came_back_is_waited_for(pipe: Path, watch: PresenceWatch) -> None:
    presence = Presence(pipe)
    for present in (True, False, True):
        presence.tell(present)
    assert watch.present()
    assert not watch.wait_for_absence(0.05)
    presence.close()


def test_a_killed_owner_is_absent(pipe: Path, watch: PresenceWatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(pipe)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"present\n"
        assert watch.present()
        process.send_signal(signal.SIGKILL)
        assert watch.wait_for_absence(PATIENCE_S)
        assert not watch.present()
    finally:
        process.kill()
        process.communicate()


def test_without_its_folder_the_owner_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").mkdir()
    presence = Presence(tmp_path / "run" / "presence")
    (tmp_path / "run" / "presence").unlink()
    presence.tell(True)
    presence.tell(False)
    assert "updates don't stand back" in caplog.text
