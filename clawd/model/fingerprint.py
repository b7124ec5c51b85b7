"""The identity of a model file: its SHA-256, computed once and remembered as long as the file stays as it is."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from clawd.errors import ModelError

REMEMBERED = "fingerprints.json"


def fingerprint(path: Path, cache: Path) -> str:
    """SHA-256 of `path` in hexadecimal. Remembered in the folder `cache` by (path, size, time of change in ns).

    Raises:
        ModelError: the file can't be read.
    """
    path = path.resolve()
    try:
        status = path.stat()
        key = f"{path}|{status.st_size}|{status.st_mtime_ns}"
        known = _read(cache / REMEMBERED)
        if key not in known:
            with path.open("rb") as file:
                known[key] = hashlib.file_digest(file, "sha256").hexdigest()
            _write(cache / REMEMBERED, known)
    except OSError as error:
        raise ModelError(f"The model file {path} can't be read: {error.strerror}. Correct model.path.") from None
    return known[key]


def _read(file: Path) -> dict[str, str]:
    """What is remembered; a damaged file counts as empty, as all of it can be computed again."""
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(file: Path, known: dict[str, str]) -> None:
    """Written aside and renamed: a reader sees the old file or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(f".{os.getpid()}.tmp")
    aside.write_text(json.dumps(known, indent=1))
    aside.replace(file)
