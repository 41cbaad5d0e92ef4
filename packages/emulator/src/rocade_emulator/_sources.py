"""The core's C++ sources: what a library is made from, and what one object file depends on."""

from __future__ import annotations

import functools
import hashlib
import platform
import re
from collections.abc import Sequence
from pathlib import Path

CORE = Path(__file__).parent / "core"
INCLUDE_DIRS = ("", "exec")  # below core
SUFFIXES = {".cpp", ".hpp", ".h", ".inc"}

FLAGS = (
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-pthread",
    "-Wall",
    "-Wextra",
)
ISA_FLAGS: dict[str, tuple[str, ...]] = {"plain": (), "v3": ("-march=x86-64-v3",)}

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


def units(core: Path = CORE) -> list[Path]:
    """Everything that is compiled, the largest (slowest) first."""
    return sorted(core.rglob("*.cpp"), key=lambda p: (-p.stat().st_size, p))


def source_hash(core: Path = CORE) -> str:
    """Hash of everything that decides what the library does: sources, headers and flags."""
    digest = hashlib.sha256(repr((FLAGS, sorted(ISA_FLAGS.items()), platform.machine())).encode())
    for path in sorted(p for p in core.rglob("*") if p.suffix in SUFFIXES):
        digest.update(str(path.relative_to(core)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def object_hash(unit: Path, command: Sequence[str], core: Path = CORE) -> str:
    """Hash of one source with all that it includes, and of the command that compiles it."""
    digest = hashlib.sha256(repr(tuple(command)).encode())
    for path in sorted(_reached(unit, core)):
        digest.update(str(path.relative_to(core)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def _reached(unit: Path, core: Path) -> set[Path]:
    found: set[Path] = set()
    waiting = [unit]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(_included(path, path.stat().st_mtime_ns, core))
    return found


@functools.lru_cache(maxsize=1024)
def _included(path: Path, _modified: int, core: Path) -> tuple[Path, ...]:
    """The files of `core` that one file includes. A missing one is a compiler error later."""
    folders = [path.parent, *(core / name for name in INCLUDE_DIRS)]
    names = (match.decode() for match in _INCLUDE.findall(path.read_bytes()))
    candidates = ([(folder / name).resolve() for folder in folders] for name in names)
    return tuple(
        next(p for p in tries if p.is_file()) for tries in candidates if any(p.is_file() for p in tries)
    )
