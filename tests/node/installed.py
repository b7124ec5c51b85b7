"""Real JavaScript clients in `.node/`, of exactly the versions in the lock file beside this: Node, OpenClaw, the SDKs.

They are fetched once, by npm, as soon as a test asks for them; no package's own install scripts run. What is started
from here reaches this machine and nothing else: `loopback_only.cjs` is loaded into every Node process, refuses any
other address and writes it down.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT / ".node"
LOCKED = ("package.json", "package-lock.json", ".npmrc")
ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}
NPM_MISSING = "npm is missing: it brings the JavaScript clients of these tests. On Debian: `apt-get install npm`."


@dataclass(frozen=True)
class Installed:
    folder: Path  # of node_modules
    node: Path

    @property
    def openclaw(self) -> Path:
        return self.folder / "node_modules" / "openclaw" / "openclaw.mjs"

    def environment(self, home: Path, refused: Path, **more: str) -> dict[str, str]:
        """For a program of its own home, with nothing of this process's. `refused`: where other addresses are noted."""
        return {
            "PATH": f"{self.node.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "NODE_OPTIONS": f"--require={HERE / 'loopback_only.cjs'}",
            "LOOPBACK_ONLY_REFUSED": str(refused),
            **more,
        }


def installed() -> Installed:
    """What the lock file names; fetched if it isn't there."""
    FOLDER.mkdir(exist_ok=True)
    with FileLock(FOLDER / ".lock"):
        stamp = FOLDER / ".installed"
        if not stamp.exists() or stamp.read_text() != _digest():
            stamp.unlink(missing_ok=True)
            _install()
            stamp.write_text(_digest())
    architecture = ARCHITECTURES[platform.machine()]
    return Installed(FOLDER, FOLDER / "node_modules" / f"node-linux-{architecture}" / "bin" / "node")


def _digest() -> str:
    return hashlib.sha256(b"".join((HERE / name).read_bytes() for name in LOCKED)).hexdigest()


def _install() -> None:
    npm = shutil.which("npm")
    assert npm is not None, NPM_MISSING
    for name in LOCKED:
        shutil.copy(HERE / name, FOLDER / name)
    done = subprocess.run(
        [npm, "ci", "--ignore-scripts", "--loglevel=error"],
        cwd=FOLDER,
        env={**os.environ, "npm_config_engine_strict": "false"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"npm could not fetch the JavaScript clients:\n{done.stdout}{done.stderr}"
