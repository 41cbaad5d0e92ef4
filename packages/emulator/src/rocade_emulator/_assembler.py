"""Turns AMDGPU assembly (`.s`, as clang and Triton write it) into a code object, by clang and ld.lld."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocade_emulator import _settings
from rocade_emulator._targets import BY_NAME

OLDEST_CLANG = 20
SECONDS = 120
TRIPLE = "amdgcn-amd-amdhsa"

_VERSION = re.compile(r"clang version (\d+)")
_TARGET_LINE = re.compile(r'^([ \t]*\.amdgcn_target[ \t]+)"([^"]*)"', re.MULTILINE)
_GFX = re.compile(r"gfx[0-9a-f]+")


class AssemblyError(RuntimeError):
    """No assembler was found, or it refused the file. The text holds what it printed."""


@dataclass(frozen=True, slots=True)
class Assembler:
    """The two commands: `clang` assembles, `lld` links what it made."""

    clang: tuple[str, ...]
    lld: tuple[str, ...]


def target_of(source: str, target: str | None) -> str:
    """The target that assembly is for: `target`, or what its `.amdgcn_target` line says.

    Raises:
        AssemblyError: neither says, or they differ.
    """
    line = _TARGET_LINE.search(source)
    named = _GFX.search(line.group(2)) if line else None
    if named is None:
        if target is None:
            raise AssemblyError("the file has no .amdgcn_target line, so a target must be given")
        return target
    if target is not None and named.group() != target:
        raise AssemblyError(f"the file is for {named.group()}, the target given is {target}")
    return named.group()


def assemble(source: str, target: str) -> bytes:
    """The linked code object of one assembly file.

    Raises:
        AssemblyError: there is no assembler, or the source is wrong.
        ValueError: the target is not emulated.
    """
    if target not in BY_NAME:
        raise ValueError(f"target {target!r} is not emulated; there are {', '.join(BY_NAME)}")
    tools = assembler()
    with tempfile.TemporaryDirectory(prefix="rocade-emulator-") as name:
        text, made, linked = (Path(name) / file for file in ("in.s", "in.o", "in.co"))
        text.write_text(_plain_triple(source))
        arch = ("-target", TRIPLE, f"-mcpu={target}")
        _run([*tools.clang, "-x", "assembler", *arch, "-c", str(text), "-o", str(made)])
        _run([*tools.lld, "-shared", str(made), "-o", str(linked)])
        return linked.read_bytes()


def _plain_triple(source: str) -> str:
    """The same text with the triple that every clang knows; newer compilers write others."""

    def plain(match: re.Match[str]) -> str:
        target_id = match.group(2).rpartition("-")[2]
        return f'{match.group(1)}"{TRIPLE}--{target_id}"'

    return _TARGET_LINE.sub(plain, source)


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise AssemblyError(f"{shlex.join(command)}\nwas not done after {SECONDS} s") from error
    if done.returncode:
        raise AssemblyError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")


@functools.cache
def assembler() -> Assembler:
    """The assembler to use.

    Raises:
        AssemblyError: there is none.
    """
    tried: list[str] = []
    for found in _candidates():
        if (problem := _problem(found)) is None:
            return found
        tried.append(f"{shlex.join(found.clang)}: {problem}")
    raise AssemblyError(
        f"no assembler for AMDGPU was found. Install clang and lld >= {OLDEST_CLANG}, or pip install "
        f"'ziglang>=0.17.1', or set {_settings.CLANG.name}. Tried: {'; '.join(tried) or 'nothing'}"
    )


def _candidates() -> Iterator[Assembler]:
    if chosen := _settings.CLANG.read():
        yield _beside(tuple(shlex.split(chosen)))
        return
    for name in ("amdclang", "clang", *(f"clang-{version}" for version in range(30, OLDEST_CLANG - 1, -1))):
        if (path := shutil.which(name)) is not None:
            yield _beside((path,))
    if importlib.util.find_spec("ziglang") is not None:
        zig = (sys.executable, "-m", "ziglang")
        yield Assembler((*zig, "clang"), (*zig, "ld.lld"))


def _beside(clang: tuple[str, ...]) -> Assembler:
    """The linker in the folder of a clang, with the same version suffix, else the one on PATH."""
    resolved = Path(shutil.which(clang[0]) or clang[0])
    suffix = resolved.name.partition("clang")[2]
    for name in (f"ld.lld{suffix}", "ld.lld"):
        if (path := shutil.which(name, path=str(resolved.parent)) or shutil.which(name)) is not None:
            return Assembler(clang, (path,))
    return Assembler(clang, ())


def _problem(tools: Assembler) -> str | None:
    if not tools.lld:
        return "no ld.lld beside it or on PATH"
    try:
        done = subprocess.run(
            [*tools.clang, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except OSError as error:
        return str(error)
    version = _VERSION.search(done.stdout)
    if version is None:
        return "it does not print a clang version"
    if int(version.group(1)) < OLDEST_CLANG:
        return f"it is version {version.group(1)}; {OLDEST_CLANG} or newer is needed"
    return None
