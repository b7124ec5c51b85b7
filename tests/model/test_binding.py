from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clawd.errors import BindingError, ModelError
from clawd.model.binding import REMEMBERED, probe

Child = Callable[[str], list[str]]


@pytest.fixture
def child(tmp_path: Path) -> Child:
    """A program in the binding's place, from the lines of its body; each run leaves its arguments in `runs`."""

    def write(body: str) -> list[str]:
        script = tmp_path / "child.py"
        script.write_text(
            "import os, signal, sys\n"
            f"open({str(tmp_path / 'runs')!r}, 'a').write(' '.join(sys.argv[2:]) + '\\n')\n" + body
        )
        return [sys.executable, str(script)]

    return write


CRASH = "os.kill(os.getpid(), signal.SIGSEGV)\n"


def runs(tmp_path: Path) -> list[str]:
    return (tmp_path / "runs").read_text().splitlines()


def test_the_binding_as_installed_decodes(embedded_model: Path, tmp_path: Path) -> None:
    report = probe(embedded_model, tmp_path)
    assert not report.remembered
    assert probe(embedded_model, tmp_path).remembered


def test_what_works_is_remembered_until_the_model_changes(tiny_model: Path, tmp_path: Path, child: Child) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(tiny_model.read_bytes())
    command = child("")
    assert probe(model, tmp_path, command).use_extra_bufts
    assert probe(model, tmp_path, command).use_extra_bufts
    assert runs(tmp_path) == [""]
    os.utime(model, ns=(1, 1))
    probe(model, tmp_path, command)
    assert runs(tmp_path) == ["", ""]
    (tmp_path / REMEMBERED).write_text("[]")
    probe(model, tmp_path, command)
    assert len(runs(tmp_path)) == 3


def test_a_binding_that_crashes_is_tried_without_extra_buffers(tiny_model: Path, tmp_path: Path, child: Child) -> None:
    report = probe(tiny_model, tmp_path, child(f"if '--no-extra-bufts' not in sys.argv:\n    {CRASH}"))
    assert not report.use_extra_bufts
    assert report.explanation is not None
    assert "SIGSEGV" in report.explanation and "make rebuild-llama" in report.explanation
    assert runs(tmp_path) == ["", "--no-extra-bufts"]
    assert not probe(tiny_model, tmp_path).use_extra_bufts  # remembered


def test_a_binding_that_always_crashes_is_explained(tiny_model: Path, tmp_path: Path, child: Child) -> None:
    with pytest.raises(BindingError, match=r"SIGSEGV.*make rebuild-llama"):
        probe(tiny_model, tmp_path, child(CRASH))
    assert not (tmp_path / REMEMBERED).exists()


def test_a_binding_that_cannot_be_loaded_is_explained(tiny_model: Path, tmp_path: Path, child: Child) -> None:
    with pytest.raises(BindingError, match=r"libgomp.so.1: cannot open.*make rebuild-llama"):
        probe(tiny_model, tmp_path, child("sys.exit('OSError: libgomp.so.1: cannot open')"))


def test_a_damaged_model_is_not_blamed_on_the_binding(tmp_path: Path) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + b"\0" * 200)
    with pytest.raises(ModelError, match="can't be loaded") as caught:
        probe(junk, tmp_path)
    assert not isinstance(caught.value, BindingError)
    with pytest.raises(ModelError, match="can't be read"):
        probe(tmp_path / "missing.gguf", tmp_path)
