"""The data folder: what lies where. One object, made once, passed down; nobody else joins path names."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from clawd.errors import ConfigError, StoreError

HOME_VARIABLE = "CLAWD_HOME"


@dataclass(frozen=True)
class DataFolder:
    """Everything that one daemon owns on disk, below `root`."""

    root: Path

    @classmethod
    def default(cls) -> DataFolder:
        """`CLAWD_HOME` if set, else the XDG data folder of the user."""
        home = os.environ.get(HOME_VARIABLE)
        if home and not is_text(home):
            raise ConfigError(f"{HOME_VARIABLE} is no UTF-8 path: name a folder by another.")
        root = Path(home).expanduser().resolve() if home else Path(platformdirs.user_data_dir("clawd"))
        if root.exists() and not root.is_dir():
            raise ConfigError(f"The data folder {root} is no folder: {HOME_VARIABLE} names another.")
        return cls(root)

    @property
    def config_file(self) -> Path:
        """`clawd.toml` in `CLAWD_HOME` if that is set, else in the XDG config folder."""
        if os.environ.get(HOME_VARIABLE):
            return self.root / "clawd.toml"
        return Path(platformdirs.user_config_dir("clawd")) / "clawd.toml"

    @property
    def database(self) -> Path:
        return self.root / "clawd.db"

    @property
    def lock_file(self) -> Path:
        return self.root / "clawd.lock"

    @property
    def run(self) -> Path:
        """Doorbells, the sign of people, resolved settings and the daemon's record: rewritten at each start."""
        return self.root / "run"

    @property
    def owner_key_file(self) -> Path:
        """A key that the daemon makes at each start: whoever can read it is the owner of this folder."""
        return self.run / "owner.key"

    def owner_key(self) -> str | None:
        """The present owner's key; None: no daemon runs on this folder."""
        return self.owner_key_file.read_text() if self.owner_key_file.exists() else None

    @property
    def server_bell(self) -> Path:
        """Rung when a version is staged."""
        return self.run / "server.bell"

    @property
    def learner_bell(self) -> Path:
        """Rung when a turn can be judged."""
        return self.run / "learner.bell"

    @property
    def presence(self) -> Path:
        """Held open by the server while it answers people."""
        return self.run / "presence"

    @property
    def settings_file(self) -> Path:
        """The resolved settings that the daemon hands to its processes, secrets included."""
        return self.run / "settings.json"

    @property
    def daemon_file(self) -> Path:
        """`clawd.daemon.record.DaemonRecord`: who runs on this folder, and where it listens."""
        return self.run / "daemon.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def jobs(self) -> Path:
        """One folder per update, named by its id; removed when housekeeping retires the update."""
        return self.root / "jobs"

    @property
    def adapters(self) -> Path:
        """`adapters/<adapter id>/v0001/`: the published versions, immutable."""
        return self.root / "adapters"

    @property
    def cache(self) -> Path:
        """What can be made again: dense bases, fingerprints, the binding's probe."""
        return self.root / "cache"

    @property
    def states(self) -> Path:
        """Key-value states of conversations, saved over a restart: they hold what was said."""
        return self.cache / "states"

    def create(self) -> None:
        """Make the folders, readable by their owner alone: conversations lie here.

        Raises:
            StoreError: one of them can't be made or written to.
        """
        for folder in (self.root, self.run, self.logs, self.jobs, self.adapters, self.cache):
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise StoreError(f"The data folder can't be used: {error}. {HOME_VARIABLE} names another.") from None
            if not os.access(folder, os.W_OK | os.X_OK):
                raise StoreError(
                    f"The data folder can't be used: {folder} is not writable. {HOME_VARIABLE} names another."
                )


def is_text(path: str) -> bool:
    """Whether a path is valid UTF-8: others can't be written into settings and records."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_privately(path: Path, text: str) -> None:
    """Write `text` to `path`, readable by its owner alone. A reader sees the old file or the new one, never a part."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
