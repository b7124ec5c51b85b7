"""Builds `.venv`: what `make setup` does. Nothing outside the checkout is touched but pip's own caches.

Two pip steps, each with a stamp in `.venv` that holds a digest of all it depends on; a step whose stamp agrees is left
out. llama.cpp comes first and alone: it takes minutes to compile, and must neither be taken from pip's cache of wheels
(a build with other flags may crash) nor be compiled again because some other requirement has changed.

Plain standard library: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from llama_cpu_flags import options_of_this_machine

LLAMA = "llama-cpp-python"
EXTRAS = "train,dev"
TEXT_ONLY = "-DLLAVA_BUILD=OFF"  # clawd uses no images: a quarter less to compile

Run = Callable[[Sequence[str], dict[str, str]], None]
"""Runs a command with these changes to the environment; raises subprocess.CalledProcessError if it fails."""


class SetUpError(Exception):
    """Something is missing on this machine; the text says what to install."""


def run_command(command: Sequence[str], changes: dict[str, str]) -> None:
    subprocess.run(command, check=True, env={**os.environ, **changes})


class SetUp:
    def __init__(self, checkout: Path, cmake_args: str, run: Run = run_command) -> None:
        self._checkout = checkout
        self._venv = checkout / ".venv"
        self._constraints = checkout / "constraints-cpu.txt"
        self._cmake_args = cmake_args
        self._run = run

    def bring_up_to_date(self, rebuild_llama: bool = False) -> None:
        """Do what is due.

        Raises:
            SetUpError: a tool of the system is missing.
            subprocess.CalledProcessError: a step failed; it is done again the next time.
        """
        self._make_venv()
        llama = self._digest(self._llama_requirement(), self._cmake_args)
        if rebuild_llama or self._stamp("llama") != llama:
            self._install_llama()
            self._set_stamp("llama", llama)
        packages = self._digest(
            str(self._checkout), (self._checkout / "pyproject.toml").read_text(), self._constraints.read_text(), EXTRAS
        )
        if self._stamp("packages") != packages:
            self._pip("install", "--constraint", str(self._constraints), "--editable", f"{self._checkout}[{EXTRAS}]")
            self._set_stamp("packages", packages)

    @property
    def _python(self) -> Path:
        return self._venv / "bin" / "python"

    def _make_venv(self) -> None:
        if self._python.exists():  # follows the link: false also if that Python has been uninstalled
            return
        check_python()
        print("making .venv", flush=True)
        self._run([sys.executable, "-m", "venv", "--clear", str(self._venv)], {})

    def _llama_requirement(self) -> str:
        for line in self._constraints.read_text().splitlines():
            if line.startswith(f"{LLAMA}=="):
                return line.strip()
        raise SetUpError(f"{self._constraints} names no version of {LLAMA}")

    def _install_llama(self) -> None:
        check_compiler()
        print(f"compiling llama.cpp: some minutes. {self._cmake_args}", flush=True)
        changes = {"CMAKE_ARGS": self._cmake_args, "CMAKE_BUILD_PARALLEL_LEVEL": str(len(os.sched_getaffinity(0)))}
        # --no-deps: what it requires comes with the second step; --force-reinstall: the version may be the same.
        options = ["--no-binary", LLAMA, "--no-cache-dir", "--no-deps", "--force-reinstall"]
        self._pip("install", *options, self._llama_requirement(), changes=changes)

    def _pip(self, *arguments: str, changes: dict[str, str] | None = None) -> None:
        self._run([str(self._python), "-m", "pip", "--disable-pip-version-check", *arguments], changes or {})

    def _digest(self, *parts: str) -> str:
        python = os.path.realpath(self._python)
        return hashlib.sha256("\0".join((python, *parts)).encode()).hexdigest()

    def _stamp(self, step: str) -> str | None:
        path = self._stamp_path(step)
        return path.read_text() if path.exists() else None

    def _set_stamp(self, step: str, digest: str) -> None:
        self._stamp_path(step).write_text(digest)

    def _stamp_path(self, step: str) -> Path:
        return self._venv / f"clawd-{step}.stamp"


def check_python() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  this is where an older one is told
        raise SetUpError(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: use `make PYTHON=… setup`")
    try:
        import ensurepip  # noqa: F401, PLC0415  Debian leaves it out of python3
        import venv  # noqa: F401, PLC0415
    except ImportError:
        raise SetUpError("Python's venv module is missing: apt-get install python3-venv") from None


def check_compiler() -> None:
    """cmake and ninja come as build requirements where the system has none."""
    missing = [name for name in ("gcc", "g++") if shutil.which(name) is None]
    if missing:
        raise SetUpError(
            f"{' and '.join(missing)} missing, llama.cpp is compiled here: apt-get install {' '.join(missing)}"
        )


def cmake_args() -> str:
    """For this machine; what the caller's CMAKE_ARGS says comes last, so that it wins."""
    return " ".join([*options_of_this_machine(), TEXT_ONLY, os.environ.get("CMAKE_ARGS", "")]).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Build .venv, or bring it up to date.")
    parser.add_argument("--rebuild-llama", action="store_true", help="compile llama.cpp even if it is up to date")
    arguments = parser.parse_args()
    set_up = SetUp(Path(__file__).resolve().parent.parent, cmake_args())
    try:
        set_up.bring_up_to_date(arguments.rebuild_llama)
    except SetUpError as error:
        sys.exit(f"set-up: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"set-up: this failed, see above: {' '.join(map(str, error.cmd))}")


if __name__ == "__main__":
    main()
