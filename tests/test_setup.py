"""`make setup`: the flags for llama.cpp, which steps run when, and the shipped unit file."""

from __future__ import annotations

import configparser
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from clawd import errors
from clawd.config import DaemonSettings
from clawd.daemon.supervisor import INCURABLE, KILL_MARGIN_S

ROOT = Path(__file__).parent.parent
UNIT = ROOT / "systemd" / "clawd.service"


def script(name: str) -> ModuleType:
    """A script of `scripts/`, which is no package."""
    if str(ROOT / "scripts") not in sys.path:
        sys.path.insert(0, str(ROOT / "scripts"))
    spec = importlib.util.find_spec(name)
    assert spec is not None
    return importlib.import_module(name)


flags = script("llama_cpu_flags")
set_up = script("set_up")

SAPPHIRE_RAPIDS = """processor\t: 0
flags\t\t: sse4_2 avx f16c fma bmi2 avx2 avx_vnni avx512f avx512dq avx512cd avx512bw avx512vl avx512vbmi avx512_vnni \
avx512_bf16 amx_bf16 amx_tile amx_int8
vmx flags\t: vnmi

processor\t: 1
flags\t\t: sse4_2 avx f16c fma bmi2 avx2 avx_vnni avx512f avx512dq avx512cd avx512bw avx512vl avx512vbmi avx512_vnni \
avx512_bf16 amx_bf16 amx_tile amx_int8
"""


def switched_on(cpuinfo: str) -> set[str]:
    options = flags.cmake_options("x86_64", flags.cpu_flags(cpuinfo))
    return {option.removeprefix("-D").removesuffix("=ON") for option in options if option.endswith("=ON")}


class TestCpuFlags:
    def test_everything_but_amx_and_native(self) -> None:
        on = switched_on(SAPPHIRE_RAPIDS)
        assert on == set(flags.NEEDED)
        options = flags.cmake_options("x86_64", flags.cpu_flags(SAPPHIRE_RAPIDS))
        assert {"-DGGML_NATIVE=OFF", "-DGGML_AMX_TILE=OFF", "-DGGML_AMX_INT8=OFF", "-DGGML_AMX_BF16=OFF"} <= set(
            options
        )

    def test_haswell(self) -> None:
        on = switched_on("flags\t: sse4_2 avx f16c fma bmi2 avx2")
        assert on == {"GGML_SSE42", "GGML_AVX", "GGML_F16C", "GGML_FMA", "GGML_BMI2", "GGML_AVX2"}

    def test_half_of_avx512_is_none_of_it(self) -> None:
        assert not any("AVX512" in name for name in switched_on("flags\t: avx2 avx512f avx512_vnni avx512_bf16"))

    def test_what_one_core_lacks_is_off(self) -> None:
        assert switched_on("flags\t: avx avx2\nflags\t: avx\n") == {"GGML_AVX"}

    def test_every_option_is_told_even_on_an_old_cpu(self) -> None:
        """llama.cpp's defaults switch AVX2 on when native is off: silence would crash here."""
        options = flags.cmake_options("x86_64", frozenset())
        assert len(options) == len(flags.NEVER) + len(flags.NEEDED)
        assert all(option.endswith("=OFF") for option in options)

    def test_other_machines_keep_the_default(self) -> None:
        assert flags.cmake_options("aarch64", flags.cpu_flags("Features\t: fp asimd")) == []


class Checkout:
    """A folder like a checkout, and a `run` that makes the venv's Python and writes down what else it was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commands: list[list[str]] = []
        self.changes: dict[str, str] = {}
        self.fails = False
        for name in ("pyproject.toml", "constraints-cpu.txt"):
            shutil.copy(ROOT / name, path)

    def run(self, command: Sequence[str], changes: dict[str, str]) -> None:
        self.commands.append(list(command))
        self.changes |= changes
        if "venv" in command:
            if "--clear" in command:
                shutil.rmtree(self.path / ".venv", ignore_errors=True)
            (self.path / ".venv" / "bin").mkdir(parents=True)
            (self.path / ".venv" / "bin" / "python").symlink_to(sys.executable)
        elif self.fails:
            raise subprocess.CalledProcessError(1, command)

    def steps(self, cmake_args: str = "-DX=ON", rebuild_llama: bool = False) -> list[str]:
        """Which steps an update runs now."""
        self.commands.clear()
        set_up.SetUp(self.path, cmake_args, self.run).bring_up_to_date(rebuild_llama)
        return [self.name(command) for command in self.commands]

    @staticmethod
    def name(command: list[str]) -> str:
        return "venv" if "venv" in command else "llama" if "--no-binary" in command else "packages"

    def edit(self, name: str, before: str, after: str) -> None:
        text = (self.path / name).read_text()
        assert before in text
        (self.path / name).write_text(text.replace(before, after))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


class TestSetUp:
    def test_everything_once(self, checkout: Checkout) -> None:
        assert checkout.steps() == ["venv", "llama", "packages"]
        assert checkout.steps() == []

    def test_llama_is_compiled_here_past_the_cache(self, checkout: Checkout) -> None:
        checkout.steps("-DGGML_NATIVE=OFF")
        (command,) = (command for command in checkout.commands if checkout.name(command) == "llama")
        assert command[:3] == [str(checkout.path / ".venv" / "bin" / "python"), "-m", "pip"]
        assert {"--no-cache-dir", "--no-deps", "--force-reinstall"} <= set(command)
        assert command[command.index("--no-binary") + 1] == "llama-cpp-python"
        assert re.fullmatch(r"llama-cpp-python==\d+\.\d+\.\d+", command[-1])
        assert checkout.changes["CMAKE_ARGS"] == "-DGGML_NATIVE=OFF"
        assert int(checkout.changes["CMAKE_BUILD_PARALLEL_LEVEL"]) == len(os.sched_getaffinity(0))

    def test_changed_requirement_compiles_nothing(self, checkout: Checkout) -> None:
        checkout.steps()
        checkout.edit("pyproject.toml", "rich>=14", "rich>=13")
        assert checkout.steps() == ["packages"]
        checkout.edit("constraints-cpu.txt", "rich==", "# rich==")
        assert checkout.steps() == ["packages"]

    def test_other_llama_version_or_flags_compile(self, checkout: Checkout) -> None:
        checkout.steps()
        checkout.edit("constraints-cpu.txt", "llama-cpp-python==0.3.36", "llama-cpp-python==0.3.37")
        assert checkout.steps() == ["llama", "packages"]
        assert checkout.steps("-DX=OFF") == ["llama"]

    def test_rebuild_on_demand(self, checkout: Checkout) -> None:
        checkout.steps()
        assert checkout.steps(rebuild_llama=True) == ["llama"]

    def test_failed_step_is_done_again(self, checkout: Checkout) -> None:
        checkout.fails = True
        with pytest.raises(subprocess.CalledProcessError):
            checkout.steps()
        checkout.fails = False
        assert checkout.steps() == ["llama", "packages"]

    def test_uninstalled_python_means_a_new_venv(self, checkout: Checkout) -> None:
        checkout.steps()
        python = checkout.path / ".venv" / "bin" / "python"
        python.unlink()
        python.symlink_to("/nowhere/python")
        assert checkout.steps() == ["venv", "llama", "packages"]

    def test_missing_compiler_is_named(self, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(checkout.path))
        with pytest.raises(set_up.SetUpError, match=r"apt-get install gcc g\+\+"):
            checkout.steps()

    def test_missing_venv_module_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ensurepip", None)
        with pytest.raises(set_up.SetUpError, match="python3-venv"):
            set_up.check_python()

    def test_caller_has_the_last_word_on_options(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CMAKE_ARGS", "-DGGML_NATIVE=ON -DGGML_CUDA=ON")
        assert set_up.cmake_args().endswith(" -DGGML_NATIVE=ON -DGGML_CUDA=ON")
        monkeypatch.delenv("CMAKE_ARGS")
        assert set_up.cmake_args().split() == [*flags.options_of_this_machine(), set_up.TEXT_ONLY]


class TestFiles:
    def test_constraints_pin_all_that_pyproject_names(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = project["optional-dependencies"]
        named = {
            re.split(r"[<>=\[ ]", requirement)[0].lower()
            for requirement in [*project["dependencies"], *extras["train"], *extras["quant"], *extras["dev"]]
        }
        lines = (ROOT / "constraints-cpu.txt").read_text().splitlines()
        pinned = {line.partition("==")[0] for line in lines if "==" in line}
        assert named - {"clawd"} <= pinned

    def test_no_file_of_the_set_up_names_a_package_server(self) -> None:
        names = ["pyproject.toml", "constraints-cpu.txt", "Makefile", ".ci/run", "scripts/set_up.py"]
        for name in names:
            text = (ROOT / name).read_text()
            assert not re.search(r"https?://|index-url|find-links", text), name

    def test_the_javascript_clients_are_pinned_and_come_from_wherever_npm_is_told_to_look(self) -> None:
        wanted = json.loads((ROOT / "tests" / "node" / "package.json").read_text())
        locked = json.loads((ROOT / "tests" / "node" / "package-lock.json").read_text())["packages"]
        for name, version in (wanted["dependencies"] | wanted["optionalDependencies"]).items():
            assert locked[f"node_modules/{name}"]["version"] == version
        assert all("integrity" in package or package.get("inBundle") for path, package in locked.items() if path)
        assert not any("resolved" in package for package in locked.values())

    def test_make_targets(self) -> None:
        done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
        listed = re.findall(r"^make (\S+)", done.stdout, re.M)
        assert listed == ["help", "setup", "rebuild-llama", "start", "check", "test", "test-openclaw", "test-nf4"]
        plan = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        order = [plan.index(part) for part in ("set_up.py", "ruff check", "ruff format --check", "mypy", "pytest")]
        assert order == sorted(order)
        assert {"make test", "make test-openclaw", "make test-nf4"} <= set(
            (ROOT / ".ci" / "run").read_text().splitlines()
        )
        assert os.access(ROOT / ".ci" / "run", os.X_OK)


class TestUnit:
    @pytest.fixture
    def service(self) -> configparser.SectionProxy:
        parser = configparser.ConfigParser(interpolation=None, strict=True)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read(UNIT)
        return parser["Service"]

    def test_statuses_are_those_of_the_errors(self, service: configparser.SectionProxy) -> None:
        incurable = {*INCURABLE, errors.AlreadyRunning.exit_status, errors.PortTaken.exit_status}
        assert {int(status) for status in service["RestartPreventExitStatus"].split()} == incurable

    def test_life(self, service: configparser.SectionProxy) -> None:
        assert service["Type"] == "notify"
        assert service["KillMode"] == "mixed"
        assert service["Restart"] == "on-failure"
        assert service["ExecStart"].endswith("clawd start")
        assert float(service["TimeoutStopSec"].removesuffix("s")) > DaemonSettings().grace_s + 2 * KILL_MARGIN_S

    @pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze isn't installed")
    def test_systemd_accepts_it(self, tmp_path: Path) -> None:
        assert self.complaints(UNIT, tmp_path) == ""
        misspelt = tmp_path / "clawd.service"
        misspelt.write_text(UNIT.read_text().replace("Restart=", "Restrat="))
        assert "Restrat" in self.complaints(misspelt, tmp_path), "then the line above says nothing"

    @staticmethod
    def complaints(unit: Path, home: Path) -> str:
        command = home / ".local" / "bin" / "clawd"
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text("#!/bin/sh\n")
        command.chmod(0o755)
        (home / "run").mkdir(exist_ok=True, mode=0o700)
        done = subprocess.run(
            ["systemd-analyze", "--user", "verify", str(unit)],
            env={**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run")},
            capture_output=True,
            text=True,
            check=False,
        )
        return "\n".join(line for line in done.stderr.splitlines() if unit.name in line)
