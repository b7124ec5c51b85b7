"""Whether llama.cpp's binding works on this machine, found out in a child process so that a crash costs nothing.

A build for CPUs with AMX can die with a segmentation fault at its first decode. The child decodes a few tokens of the
very model that is to be served; if it dies, it is tried again without llama.cpp's extra buffer types (weight repacking,
which is what uses AMX). What works is remembered until the binding, the CPU or the model file changes.

Run as a program (`python -m clawd.model.binding MODEL [--no-extra-bufts]`) this module is the child.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from clawd.errors import BindingError, ModelError

REMEMBERED = "binding.json"
PACKAGE = "llama-cpp-python"
NO_EXTRA_BUFTS = "--no-extra-bufts"
TIMEOUT_S = 300.0
REMEDY = (
    "Build it anew for this machine with `make rebuild-llama`, "
    'or by hand: CMAKE_ARGS="-DGGML_NATIVE=OFF" pip install --force-reinstall --no-binary :all: --no-deps '
    f"{PACKAGE}."
)


@dataclass(frozen=True)
class BindingReport:
    """What works."""

    version: str  # of the package llama-cpp-python
    use_extra_bufts: bool  # false: decoding crashes with llama.cpp's extra buffer types
    explanation: str | None  # for the log, if something doesn't work as it should
    remembered: bool = False  # from an earlier start, nothing was tried now


def probe(model: Path, cache: Path, command: Sequence[str] | None = None) -> BindingReport:
    """Decode with `model` in a child process, or remember having done so in the folder `cache`.

    `command` is what the child runs, by default this module; the model's path is appended to it, and for the second
    try `--no-extra-bufts`.

    Raises:
        ModelError: the binding works, but the file can't be served.
        BindingError: the binding can't be loaded, or crashes either way.
    """
    key = _identity(model)
    known = _remembered(cache / REMEMBERED, key)
    if known is not None:
        return known
    child = [*(command or [sys.executable, "-m", "clawd.model.binding"]), str(model)]
    first = _try(child)
    if first is None:
        report = BindingReport(_version(), use_extra_bufts=True, explanation=None)
    else:
        second = _try([*child, NO_EXTRA_BUFTS])
        if second is not None:
            raise BindingError(f"llama.cpp's binding crashes on this machine ({first}; {second}). {REMEDY}")
        report = BindingReport(
            _version(),
            use_extra_bufts=False,
            explanation=f"llama.cpp's binding crashes with its extra buffer types ({first}); served without. {REMEDY}",
        )
    cache.mkdir(parents=True, exist_ok=True)
    (cache / REMEMBERED).write_text(json.dumps({"key": key, "report": asdict(report)}, indent=1))
    return report


def _try(child: Sequence[str]) -> str | None:
    """Run the child. None: it decoded; else how it died.

    Raises:
        ModelError, BindingError: it didn't die, but says why it can't.
    """
    try:
        done = subprocess.run(child, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"killed by {signal.Signals(-done.returncode).name}"
    last = done.stderr.strip().splitlines()[-1:] or ["no message"]
    if done.returncode == ModelError.exit_status:
        raise ModelError(last[0])
    raise BindingError(f"llama.cpp's binding can't be used ({last[0]}). {REMEDY}")


def _identity(model: Path) -> str:
    """Changes with the binding, its shared libraries, the CPU's abilities and the model file."""
    files = [file for file in _library_files() if file.is_file()]
    parts = [_version(), _cpu_flags()]
    for file in [*files, model]:
        try:
            status = file.stat()
        except OSError as error:
            raise ModelError(f"The model file {file} can't be read: {error.strerror}. Correct model.path.") from None
        parts.append(f"{file}|{status.st_size}|{status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _version() -> str:
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        raise BindingError(f"The package {PACKAGE} is not installed. {REMEDY}") from None


def _library_files() -> list[Path]:
    files = metadata.files(PACKAGE) or []
    return sorted(Path(str(file.locate())) for file in files if ".so" in file.name or file.suffix in (".dylib", ".dll"))


def _cpu_flags() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return os.uname().machine
    return next((line for line in lines if line.startswith(("flags", "Features"))), os.uname().machine)


def _remembered(file: Path, key: str) -> BindingReport | None:
    try:
        record = json.loads(file.read_text())
        if record["key"] == key:
            return BindingReport(**{**record["report"], "remembered": True})
    except (OSError, ValueError, TypeError, KeyError):
        pass  # nothing remembered, or by another clawd: try again
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """The child: read some tokens, then one more, as serving does."""
    parser = argparse.ArgumentParser(prog="clawd.model.binding")
    parser.add_argument("model", type=Path)
    parser.add_argument(NO_EXTRA_BUFTS, action="store_true")
    options = parser.parse_args(arguments)
    from clawd.model.llama import llama  # noqa: PLC0415  may crash the process: only the child imports it
    from clawd.model.vocab import load_model  # noqa: PLC0415

    try:
        model = load_model(options.model, use_extra_bufts=not options.no_extra_bufts)
    except ModelError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_batch = 256, 64
    context = llama.llama_init_from_model(model, params)
    for count in (32, 1):  # a prompt and a token take different ways through ggml
        tokens = (llama.llama_token * count)(*range(count))
        if not context or llama.llama_decode(context, llama.llama_batch_get_one(tokens, count)) != 0:
            print("llama.cpp can't decode with this model file", file=sys.stderr)
            return ModelError.exit_status
    llama.llama_free(context)
    llama.llama_model_free(model)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
