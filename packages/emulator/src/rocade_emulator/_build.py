"""Builds the emulator's core from the C++ sources in this package: into a wheel, or into a cache on demand.

Safe under many processes: one builds, under a lock that dies with it, and a finished library appears by
rename.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rocade_emulator import _settings
from rocade_emulator._sources import CORE, FLAGS, INCLUDE_DIRS, ISA_FLAGS, object_hash, source_hash, units

LOG = logging.getLogger("rocade_emulator")
SHIPPED = Path(__file__).parent / "lib"
COMPILE_SECONDS = 600  # one file on a busy machine
MESSAGE_CHARS = 4000  # of a compiler's output
OBJECT_SECONDS = 14 * 86400  # objects that no build used for so long are removed

# The oldest C library that wheels built with zig run on.
ZIG_TARGET = "x86_64-linux-gnu.2.28"

_V3_CPU_FLAGS = {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}


class BuildError(RuntimeError):
    """No core, and none could be built. The text says what was tried and both ways to get one."""


@dataclass(frozen=True)
class Compiler:
    """A command that compiles and links C++."""

    command: tuple[str, ...]
    link_flags: tuple[str, ...] = ("-static-libstdc++", "-static-libgcc")
    spelling: tuple[tuple[str, str], ...] = ()  # flags that this compiler spells another way

    def spell(self, flags: Sequence[str]) -> list[str]:
        """Flags in this compiler's spelling."""
        other = dict(self.spelling)
        return [other.get(flag, flag) for flag in flags]

    def __str__(self) -> str:
        return shlex.join(self.command)

    def version(self) -> str:
        """First line that `--version` prints: a new compiler makes new objects."""
        done = subprocess.run([*self.command, "--version"], capture_output=True, text=True, check=False)
        return done.stdout.partition("\n")[0]


def is_x86() -> bool:
    """Whether this machine runs the x86-64-v3 variant at all."""
    return platform.machine().lower() in ("x86_64", "amd64")


def isas() -> tuple[str, ...]:
    """The variants that are built for this machine's architecture, the plainest first."""
    return tuple(ISA_FLAGS) if is_x86() else ("plain",)


def isa() -> str:
    """The variant to load: the chosen one, else the best that this CPU runs.

    Raises:
        ValueError: the chosen one does not exist.
    """
    chosen = _settings.ISA.read()
    if chosen:
        if chosen not in isas():
            raise ValueError(f"{_settings.ISA.name}={chosen} is none of {', '.join(isas())}")
        return chosen
    return "v3" if is_x86() and _cpu_flags() >= _V3_CPU_FLAGS else "plain"


def _cpu_flags() -> set[str]:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    return set()


def file_name(isa_name: str) -> str:
    """Name of a library: it changes with the sources, so a stale one is never found."""
    return f"librocade_emulator-{isa_name}-{source_hash()}.so"


def zig() -> Compiler | None:
    """The compiler in the package ziglang, if it is installed. Its target fixes the C library it asks for."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    target = ("-target", ZIG_TARGET) if is_x86() else ()
    return Compiler(
        (sys.executable, "-m", "ziglang", "c++", *target), (), (("-march=x86-64-v3", "-mcpu=x86_64_v3"),)
    )


def compilers() -> Iterator[Compiler]:
    """Compilers to try, best first. A chosen one (`ROCADE_EMULATOR_CXX`) is the only one."""
    chosen = _settings.CXX.read()
    if chosen and chosen != "zig":
        yield Compiler(tuple(shlex.split(chosen)))
        return
    if not chosen:
        for name in ("g++", "clang++"):
            if (path := shutil.which(name)) is not None:
                yield Compiler((path,))
    if (found := zig()) is not None:
        yield found


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        if len(said) > MESSAGE_CHARS:
            said = f"{said[: MESSAGE_CHARS // 2]}\n...\n{said[-MESSAGE_CHARS // 2 :]}"
        raise BuildError(f"{shlex.join(command)}\n{said}")


def _compile(unit: Path, command: Sequence[str], version: str, objects: Path, core: Path) -> Path:
    """The object file of one source, from the folder of objects if it is there."""
    includes = [f"-I{core / name}" for name in INCLUDE_DIRS]
    target = objects / f"{unit.stem}-{object_hash(unit, [*command, version], core)}.o"
    if target.exists():
        target.touch()  # so that it counts as used
        return target
    with tempfile.TemporaryDirectory(dir=objects, prefix=".object-") as name:
        made = Path(name) / target.name
        _run([*command, *includes, "-c", str(unit), "-o", str(made)])
        made.replace(target)
    return target


def compile_library(
    target: Path,
    compiler: Compiler,
    isa_name: str,
    objects: Path,
    extra: Sequence[str] = (),
    core: Path = CORE,
) -> None:
    """Compile and link to `target`, which appears complete or not at all. `extra` goes to every command."""
    flags = compiler.spell([*FLAGS, *ISA_FLAGS[isa_name], *extra])
    version = compiler.version()
    target.parent.mkdir(parents=True, exist_ok=True)
    objects.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        command = [*compiler.command, *flags]
        made = list(pool.map(lambda unit: _compile(unit, command, version, objects, core), units(core)))
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as name:
        library = Path(name) / target.name
        link = ["-shared", *map(str, made), "-o", str(library), *compiler.link_flags, "-Wl,-z,defs"]
        _run([*compiler.command, *flags, *link, "-lpthread", "-lm"])
        library.replace(target)


def build(target: Path, isa_name: str, objects: Path) -> Compiler:
    """Build with the first compiler that works.

    Raises:
        BuildError: none did.
    """
    failures = []
    for compiler in compilers():
        try:
            compile_library(target, compiler, isa_name, objects)
        except (BuildError, OSError, subprocess.TimeoutExpired) as error:
            failures.append(f"{compiler}: {error}")
        else:
            return compiler
    raise BuildError(_explain(failures))


def _explain(failures: Sequence[str]) -> str:
    tried = "\n".join(failures) or "no compiler was found"
    return (
        "the emulator's core is missing and could not be built. Either install a wheel of "
        "rocade-emulator, which holds it, or give it a C++20 compiler: g++ >= 12, "
        f"clang++ or pip install 'ziglang>=0.17.1' ({_settings.CXX.name} names one). Tried:\n{tried}"
    )


def check_private(folder: Path) -> None:
    """Refuse a folder from which others could make this process load their code."""
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BuildError(
            f"{folder} belongs to another user or is writable by others, so a library in it cannot be "
            f"trusted; remove those rights or set {_settings.CACHE_DIR.name} to a private folder"
        )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # released by the system when the process dies
        yield


def _remove_old(objects: Path) -> None:
    for path in objects.glob("*.o"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - OBJECT_SECONDS:
                path.unlink()


def cached_library(isa_name: str) -> Path:
    """The library for the sources as they are, built into the cache when it is not there.

    Raises:
        BuildError: it cannot be built, or the cache folder cannot be used.
    """
    folder = _settings.cache_dir()
    chosen = hashlib.sha256(_settings.CXX.read().encode()).hexdigest()[:8]
    target = folder / chosen / file_name(isa_name)
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(folder)
        check_private(target.parent)
        if target.exists():
            return target
        with _locked(folder / "build.lock"):
            if not target.exists():
                began = time.monotonic()
                compiler = build(target, isa_name, folder / "objects")
                LOG.warning("built %s with %s in %.1f s", target, compiler, time.monotonic() - began)
                _remove_old(folder / "objects")
    except OSError as error:
        raise BuildError(f"{_explain([])}\nthe cache folder {folder} cannot be used: {error}") from error
    return target


def library_path() -> Path:
    """The core to load: the one that was chosen, the one that the wheel ships, or one built on demand.

    Raises:
        BuildError: there is none and none can be built.
    """
    if chosen := _settings.LIBRARY.read():
        return Path(chosen)
    isa_name = isa()
    shipped = SHIPPED / file_name(isa_name)
    return shipped if shipped.exists() else cached_library(isa_name)
