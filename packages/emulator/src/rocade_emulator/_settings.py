"""Every environment variable that rocade_emulator reads: name, type, default and meaning.

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
    "ROCADE_EMULATOR_CXX",
    str,
    "",
    "Command of the C++20 compiler that builds the emulator's core, or `zig` for the one in the package "
    "ziglang. Not set: the first of g++, clang++ and ziglang that is there and works.",
)

CACHE_DIR = Setting(
    "ROCADE_EMULATOR_CACHE_DIR",
    str,
    "",
    "Folder for cores built on demand; it must not be writable by others. Not set: `rocade-emulator` in "
    "`XDG_CACHE_HOME`, or in `~/.cache`.",
)

ISA = Setting(
    "ROCADE_EMULATOR_ISA",
    str,
    "",
    "Instruction set that the core is compiled for: `plain` or `v3` (x86-64-v3: AVX2, FMA, F16C). Not "
    "set: the best that this CPU runs.",
)

LIBRARY = Setting(
    "ROCADE_EMULATOR_LIBRARY",
    str,
    "",
    "Path of a core to load in place of the shipped one or of one built on demand, for sanitizer builds.",
)

CLANG = Setting(
    "ROCADE_EMULATOR_CLANG",
    str,
    "",
    "Command of a clang >= 20 that assembles `.s` files for AMDGPU; `ld.lld` is looked for beside it. Not"
    " set: a clang on PATH that is new enough, else the one in the package ziglang.",
)

SETTINGS = (CXX, CACHE_DIR, ISA, LIBRARY, CLANG)


def cache_dir() -> Path:
    """The folder for cores built on demand; it may not exist yet."""
    chosen = CACHE_DIR.read()
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(base) if base else Path.home() / ".cache") / "rocade-emulator"
