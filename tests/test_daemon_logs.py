from __future__ import annotations

import io
import os
from pathlib import Path

from clawd.daemon.logs import ChildLog, last_words, rotate


def say(log: ChildLog, *texts: str) -> None:
    descriptor = log.begin()
    for text in texts:
        os.write(descriptor, text.encode())
    os.close(descriptor)


def test_small_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("1234")
    rotate(path, limit_bytes=4)
    assert path.read_text() == "1234"
    rotate(tmp_path / "missing.log")


def test_rotation_keeps_three_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    for number in range(5):
        path.write_text(f"part {number}")
        rotate(path, limit_bytes=1)
    assert not path.exists()
    kept = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert kept == {"x.log.1": "part 4", "x.log.2": "part 3", "x.log.3": "part 2"}


def test_only_the_present_process_part_counts(tmp_path: Path) -> None:
    log = ChildLog(tmp_path / "x.log", "server")
    say(log, "first life\n")
    say(log, "second life\n")
    assert log.since_start() == "second life\n"
    assert log.path.read_text() == "first life\nsecond life\n"


def test_terminal_gets_whole_lines_once_with_a_prefix(tmp_path: Path) -> None:
    terminal = io.StringIO()
    log = ChildLog(tmp_path / "x.log", "server", terminal)
    log.show()  # nothing there yet
    descriptor = log.begin()
    os.write(descriptor, b"one\ntwo\nthr")
    log.show()
    log.show()
    assert terminal.getvalue() == "server  | one\nserver  | two\n"
    os.write(descriptor, b"ee\n")
    os.close(descriptor)
    log.show()
    assert terminal.getvalue().endswith("server  | three\n")


def test_what_was_there_before_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("of yesterday\n")
    terminal = io.StringIO()
    log = ChildLog(tmp_path / "x.log", "server", terminal)
    say(log, "of today\n")
    log.show()
    assert terminal.getvalue() == "server  | of today\n"


def test_last_words_are_the_closing_message() -> None:
    assert last_words("noise\nclawd: no model\nat x.gguf\n") == "no model\nat x.gguf"
    assert last_words("clawd: first\nclawd: last") == "last"
    logged = "2026-11-29 18:00:00,123 ERROR clawd.server.process: no model\nat x.gguf"
    assert last_words(f"2026-11-29 18:00:00,122 INFO x: loading\n{logged}") == "no model\nat x.gguf"


def test_last_words_without_a_message_are_the_last_lines() -> None:
    assert last_words("\n".join(str(number) for number in range(30))).splitlines() == [str(n) for n in range(10, 30)]
    assert last_words("") == ""
