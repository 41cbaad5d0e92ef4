"""Every environment variable that rocade_kernels reads: name, type, default, meaning. Nothing else reads one.

A setting is read when it is needed, never at import.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable. The settings page of the documentation is generated from these fields."""

    name: str
    type: type[str]
    default: str
    text: str

    def read(self) -> str:
        """The value now, without surrounding blanks."""
        return os.environ.get(self.name, self.default).strip()


CXX = Setting(
    "ROCADE_CXX",
    str,
    "",
    "Command of the C++20 compiler that builds the native library, or `zig` for the one in package ziglang. "
    "Not set: the first of g++, clang++ and ziglang that is there and works.",
)

HIPCC = Setting(
    "ROCADE_HIPCC",
    str,
    "",
    "Command of the clang (20 or newer, with `ld.lld`) that compiles GPU kernels which the wheel does not "
    "hold, or `zig` for the one in package ziglang. Not set: the first of amdclang++, hipcc, clang and "
    "ziglang that is there and works.",
)

CACHE_DIR = Setting(
    "ROCADE_CACHE_DIR",
    str,
    "",
    "Folder for libraries and GPU code built on demand; it must not be writable by others. Not set: `rocade` "
    "in `XDG_CACHE_HOME`, or in `~/.cache`.",
)

BUILD_TARGETS = Setting(
    "ROCADE_BUILD_TARGETS",
    str,
    "",
    "GPU targets whose kernels a wheel build (also `pip install` from sources) compiles, separated by "
    "commas, or `none`. The others are built when first used. Not set: all.",
)

CPU_ISA = Setting(
    "ROCADE_CPU_ISA",
    str,
    "",
    "Instruction set of the native CPU kernels: `plain`, `avx2` or `avx512`. Read at plan. Not set: the "
    "best that this CPU runs.",
)

CPU_POOL = Setting(
    "ROCADE_CPU_POOL",
    str,
    "",
    "Threads of the native CPU kernels: `openmp` (those that PyTorch runs on) or `own`. Read when the "
    "backend is first used. Not set: `openmp` where the process has loaded an OpenMP runtime, else `own`.",
)

AITER_VERSION = Setting(
    "ROCADE_AITER_VERSION",
    str,
    "",
    "Version of AITER whose argument layouts and file names are used, whatever is installed. For a version "
    "that rocade does not know, and only where both are the same: a wrong layout gives wrong numbers.",
)

AITER_JIT_DIR = Setting(
    "AITER_JIT_DIR",
    str,
    "",
    "AITER's own: the folder of the libraries that it builds, and the first in which they are looked for. "
    "Not set: `aiter/jit` in the installed package, or `~/.aiter/jit`.",
)

AITER_VARIANT_DIR = Setting(
    "FLASHINFER_AITER_VARIANT_DIR",
    str,
    "",
    "More folders in which AITER's libraries are looked for, separated by colons.",
)

AITER_ASM_DIR = Setting(
    "AITER_ASM_DIR",
    str,
    "",
    "AITER's own: the folder of its hand-written kernels, one folder below it a target.",
)

SETTINGS = (
    *(CXX, HIPCC, CACHE_DIR, BUILD_TARGETS, CPU_ISA, CPU_POOL),
    *(AITER_VERSION, AITER_JIT_DIR, AITER_VARIANT_DIR, AITER_ASM_DIR),
)


def build_targets() -> frozenset[str] | None:
    """The targets that a wheel build compiles kernels for; None: all."""
    chosen = BUILD_TARGETS.read()
    names = {name.strip() for name in chosen.split(",")} - {"none", ""}
    return frozenset(names) if chosen else None


def search_path() -> str:
    """The folders in which commands are looked for."""
    return os.environ.get("PATH", "")


def cpu_pool() -> str:
    """`openmp`, `own` or "" (choose); ValueError for anything else."""
    chosen = CPU_POOL.read()
    if chosen not in ("", "openmp", "own"):
        raise ValueError(f"{CPU_POOL.name} is {chosen!r}, expected 'openmp' or 'own'")
    return chosen


def cache_dir() -> Path:
    """The folder for libraries built on demand; it may not exist yet. RuntimeError when there is no home."""
    chosen = CACHE_DIR.read()
    if chosen:
        return Path(chosen).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME", "").strip())
    return (base if base.is_absolute() else Path.home() / ".cache") / "rocade"
