"""What commands open: the data folder's store, and what it says of the model that is served."""

from __future__ import annotations

from pathlib import Path

from clawd import config
from clawd.config import Settings
from clawd.daemon import record
from clawd.errors import ClawdError
from clawd.model.embedded import embedded_model_path
from clawd.model.fingerprint import fingerprint
from clawd.paths import DataFolder
from clawd.store import Store


def open_folder() -> DataFolder:
    folder = DataFolder.default()
    folder.create()
    return folder


def open_store(folder: DataFolder | None = None) -> Store:
    return Store((folder or open_folder()).database)


def settings_of(folder: DataFolder) -> Settings:
    """Of the daemon that runs, else those that one would start with from here.

    Raises ConfigError.
    """
    if record.running(folder) is not None and folder.settings_file.exists():
        return config.take_over(folder.settings_file)
    return config.load(folder)


def served_model(folder: DataFolder) -> tuple[Path, str]:
    """The model file that is, or would be, served, and its fingerprint. Raises ModelError, ConfigError."""
    path = settings_of(folder).model.path or embedded_model_path()
    return path, fingerprint(path, folder.cache)


def base_fingerprint(folder: DataFolder) -> str | None:
    """Of the model that is, or would be, served; None: it can't be told."""
    try:
        return served_model(folder)[1]
    except ClawdError:
        return None
