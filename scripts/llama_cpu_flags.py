"""Prints CMake options for a llama.cpp that is fast on this machine's CPU and doesn't crash on it.

llama.cpp's own default, -march=native, compiles its AMX kernels on CPUs that have AMX; under many hypervisors these die
with a segmentation fault at the first decode. So on x86-64 every instruction set is chosen by name, after what the
kernel says the CPU has, and AMX never is. Other CPUs keep the default.

Plain standard library: it runs before anything is installed.
"""

from __future__ import annotations

import platform
from collections.abc import Set as AbstractSet
from pathlib import Path

AVX512 = frozenset({"avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"})

NEEDED: dict[str, frozenset[str]] = {
    "GGML_SSE42": frozenset({"sse4_2"}),
    "GGML_AVX": frozenset({"avx"}),
    "GGML_F16C": frozenset({"f16c"}),
    "GGML_FMA": frozenset({"fma"}),
    "GGML_BMI2": frozenset({"bmi2"}),
    "GGML_AVX2": frozenset({"avx2"}),
    "GGML_AVX_VNNI": frozenset({"avx_vnni"}),
    "GGML_AVX512": AVX512,
    "GGML_AVX512_VBMI": AVX512 | {"avx512vbmi"},
    "GGML_AVX512_VNNI": AVX512 | {"avx512_vnni"},
    "GGML_AVX512_BF16": AVX512 | {"avx512_bf16"},
}
"""CMake option → what /proc/cpuinfo must list for it."""

NEVER = ("GGML_NATIVE", "GGML_AMX_TILE", "GGML_AMX_INT8", "GGML_AMX_BF16")


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """The flags that all CPUs of the machine share, from the text of /proc/cpuinfo; empty if it names none."""
    lines = [
        line.partition(":")[2].split() for line in cpuinfo.splitlines() if line.partition(":")[0].strip() == "flags"
    ]
    return frozenset.intersection(*map(frozenset, lines)) if lines else frozenset()


def cmake_options(machine: str, flags: AbstractSet[str]) -> list[str]:
    if machine not in ("x86_64", "AMD64"):
        return []
    options = [f"-D{name}=OFF" for name in NEVER]
    return options + [f"-D{name}={'ON' if needed <= flags else 'OFF'}" for name, needed in NEEDED.items()]


def options_of_this_machine() -> list[str]:
    return cmake_options(platform.machine(), cpu_flags(Path("/proc/cpuinfo").read_text()))


if __name__ == "__main__":
    print(" ".join(options_of_this_machine()))
