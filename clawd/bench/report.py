"""What a benchmark tells: rows, goals with their values, and the machine they were measured on."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import psutil


@dataclass(frozen=True)
class Goal:
    """A figure that was promised. `value` None: it could not be measured, which misses the goal."""

    name: str
    value: float | None
    goal: float
    better: Literal["higher", "lower"]

    @property
    def ok(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal


def machine() -> dict[str, Any]:
    """What figures depend on, without anything that names the machine or its owner."""
    return {
        "cpu": _cpu_name(),
        "cores": psutil.cpu_count(logical=False),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "llama_cpp_python": version("llama-cpp-python"),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@dataclass(frozen=True)
class Report:
    bench: str
    command: str
    rows: list[dict[str, Any]]
    goals: list[Goal]

    def to_json(self) -> str:
        """The one object that `--json` prints."""
        goals = [{**asdict(goal), "ok": goal.ok} for goal in self.goals]
        return json.dumps({**asdict(self), "goals": goals, "machine": machine()})
