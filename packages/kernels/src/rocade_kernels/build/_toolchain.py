"""Finds a clang that compiles for GPUs, with its linker: the chosen one, ROCm's, the system's, or PyPI's."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocade_kernels import _cache, _settings
from rocade_kernels._cache import BuildError, CompilerMissingError

OLDEST_CLANG = 20
NEWEST_CLANG = 40  # names with a number that are looked for: clang-20, clang-21, ...
ROCM_FOLDERS = ("/opt/rocm/bin", "/opt/rocm/llvm/bin")
AMD, NVIDIA = "amdgcn", "nvptx64"  # LLVM's names of what it can compile for


@dataclass(frozen=True)
class Toolchain:
    """A clang and a linker of AMD code objects. `identity` changes with the compiler, and is in every key."""

    clang: tuple[str, ...]
    lld: tuple[str, ...]
    identity: str
    architectures: frozenset[str]

    def __str__(self) -> str:
        return f"{shlex.join(self.clang)} ({self.identity})"


@dataclass(frozen=True)
class Refused:
    """A compiler that was looked at, and why it does not do."""

    command: str
    reason: str

    def __str__(self) -> str:
        return f"{self.command}: {self.reason}"


def toolchain(architecture: str) -> Toolchain:
    """The first compiler that can build for `architecture` (`AMD` or `NVIDIA`).

    Raises:
        CompilerMissingError: there is none; the text has a line for every one that was looked at.
    """
    refused = []
    for found in _found(_settings.HIPCC.read(), _settings.search_path()):
        if isinstance(found, Refused):
            refused.append(str(found))
        elif architecture not in found.architectures:
            refused.append(f"{found}: does not compile for {architecture}")
        else:
            return found
    raise CompilerMissingError("\n".join(refused) or "no compiler was found")


@functools.lru_cache(maxsize=8)
def _found(chosen: str, path: str) -> tuple[Toolchain | Refused, ...]:
    """What there is, best first. Looked for once for each setting and search path."""
    return tuple(_probe(command) for command in _commands(chosen, path))


def _commands(chosen: str, path: str) -> Iterator[tuple[str, ...]]:
    if chosen and chosen != "zig":
        try:
            yield tuple(shlex.split(chosen))
        except ValueError as error:
            raise BuildError(f"{_settings.HIPCC.name} is {chosen!r}, no command: {error}") from error
        return
    if not chosen:
        numbered = [f"clang-{number}" for number in range(NEWEST_CLANG, OLDEST_CLANG - 1, -1)]
        wide = os.pathsep.join((path, *ROCM_FOLDERS))
        for name in ("amdclang++", "hipcc", "clang", *numbered):
            if (place := shutil.which(name, path=wide)) is not None:
                yield (place,)
    if (zig := _cache.ziglang("clang")) is not None:
        yield zig


def _probe(command: tuple[str, ...]) -> Toolchain | Refused:
    shown = shlex.join(command)
    try:
        said = _cache.run([*command, "--version"])
        version = re.search(r"clang version (\d+)\S*", said)
        if version is None:
            return Refused(shown, "is no clang")
        if int(version[1]) < OLDEST_CLANG:
            return Refused(shown, f"is {version[0]}; {OLDEST_CLANG} or newer is needed")
        clang = _real_clang(command, said)
        architectures = re.findall(r"^\s+(\S+)\s+- ", _cache.run([*clang, "--print-targets"]), re.MULTILINE)
        lld = _linker(clang)
    except BuildError as error:
        return Refused(shown, str(error))
    if lld is None:
        return Refused(shown, "has no ld.lld beside it or on PATH")
    identity = next(line.strip() for line in said.splitlines() if version[0] in line)
    return Toolchain(clang, lld, identity, frozenset(architectures))


def _is_zig(command: Sequence[str]) -> bool:
    return command[-1] == "clang" and ("ziglang" in command or Path(command[0]).name == "zig")


def _real_clang(command: tuple[str, ...], said: str) -> tuple[str, ...]:
    """The clang that a wrapper such as hipcc calls: a wrapper adds headers and libraries of its own."""
    folder = re.search(r"^InstalledDir: (.+)$", said, re.MULTILINE)
    if _is_zig(command) or folder is None:
        return command
    inner = Path(folder[1].strip(), "clang")
    return (str(inner), *command[1:]) if os.access(inner, os.X_OK) else command


def _linker(clang: tuple[str, ...]) -> tuple[str, ...] | None:
    if _is_zig(clang):
        return (*clang[:-1], "ld.lld")
    said = _cache.run([*clang, "-print-prog-name=ld.lld"]).strip()
    version = re.search(r"-(\d+)$", clang[0])
    names = [said, "ld.lld", *([f"ld.lld-{version[1]}"] if version else [])]
    return next(((place,) for name in names if (place := shutil.which(name)) is not None), None)
