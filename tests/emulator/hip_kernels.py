"""Compiles kernels.hip for an AMD GPU with the clang in the package ziglang; ROCm is not needed."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import needs

import rocade_emulator as emu

SOURCE = Path(__file__).parent / "kernels.hip"
TARGETS = ("gfx942", "gfx950")


@functools.cache
def assembly(target: str, source: Path = SOURCE) -> str:
    """Assembly text of a HIP source."""
    needs.module("ziglang", "ziglang, which compiles test kernels, is not installed")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.s"
        command = [
            *(sys.executable, "-m", "ziglang", "clang", "-x", "hip", "--cuda-device-only"),
            *(f"--offload-arch={target}", "-nogpuinc", "-nogpulib", "-O3", "-std=c++20", "-ffp-contract=off"),
            *("-S", str(source), "-o", str(out)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return out.read_text()


@functools.cache
def program(target: str) -> emu.Program:
    """All kernels of kernels.hip."""
    return emu.Program.from_assembly(assembly(target), target, name="kernels.hip")
