"""Builds the native CPU library from the C++ sources in this package, into a wheel or on demand into a cache.

Safe under many processes: one builds, under a lock that dies with it; a finished library appears by rename.
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

from rocade_kernels import _settings

LOG = logging.getLogger("rocade_kernels")
SOURCES = Path(__file__).parent / "cpu"
SHIPPED = Path(__file__).parent / "lib" / "librocade_cpu.so"

FLAGS = (
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-Wall",
    "-Wextra",
)
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
# The kernels are compiled once for each instruction set and chosen at run time.
ISA_FLAGS = {"plain": (), "avx2": AVX2, "avx512": AVX512}
KERNELS = "kernels.cpp"
COMPILE_SECONDS = 300  # one file on a busy machine
SHOWN_CHARS = 1500  # of a compiler's complaints

# The oldest C library that wheels built with zig run on.
ZIG_TARGET = "x86_64-linux-gnu.2.28"


class BuildError(RuntimeError):
    """No native library, and none could be built. The text says what was tried and both ways to get one."""


@dataclass(frozen=True)
class Compiler:
    """A command that compiles and links C++."""

    command: tuple[str, ...]
    link_flags: tuple[str, ...] = ("-static-libstdc++", "-static-libgcc")

    def __str__(self) -> str:
        return shlex.join(self.command)


@dataclass(frozen=True)
class Step:
    """One source file to one object file."""

    source: str
    object_name: str
    flags: tuple[str, ...] = ()


def is_x86() -> bool:
    """Whether this machine runs the AVX variants at all."""
    return platform.machine().lower() in ("x86_64", "amd64")


def source_hash(sources: Path = SOURCES) -> str:
    """Hash of everything that decides what the library does: sources, headers and flags."""
    digest = hashlib.sha256()
    for path in sorted(sources.glob("*.[ch]*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(repr((FLAGS, sorted(ISA_FLAGS.items()), platform.machine())).encode())
    return digest.hexdigest()[:16]


def zig() -> Compiler | None:
    """The compiler in the package ziglang, if it is installed. Its target fixes the C library it asks for."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    target = ("-target", ZIG_TARGET) if is_x86() else ()
    return Compiler((sys.executable, "-m", "ziglang", "c++", *target), ("-nostdlib++",))


def compilers() -> Iterator[Compiler]:
    """Compilers to try, best first. A chosen one (`ROCADE_CXX`) is the only one."""
    chosen = _settings.CXX.read()
    if chosen and chosen != "zig":
        try:
            command = tuple(shlex.split(chosen))
        except ValueError as error:
            raise BuildError(f"{_settings.CXX.name} is {chosen!r}, which is no command: {error}") from error
        yield Compiler(command)
        return
    if not chosen:
        for name in ("g++", "clang++"):
            if (path := shutil.which(name)) is not None:
                yield Compiler((path,))
    if (found := zig()) is not None:
        yield found


def steps(sources: Path) -> list[Step]:
    """What to compile, the slowest first."""
    isas = ISA_FLAGS if is_x86() else {"plain": ()}
    kernels = [Step(KERNELS, f"{isa}.o", flags) for isa, flags in reversed(isas.items())]
    rest = [Step(p.name, f"{p.stem}.o") for p in sorted(sources.glob("*.cpp")) if p.name != KERNELS]
    return kernels + rest


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}\n{(done.stdout + done.stderr)[:SHOWN_CHARS]}")


def compile_library(
    target: Path, compiler: Compiler, sources: Path = SOURCES, extra: Sequence[str] = ()
) -> None:
    """Compile and link to `target`, which appears whole or not at all. `extra` flags go to every command."""
    defines = [f'-DRK_SOURCE_HASH="{source_hash(sources)}"', *(["-DRK_HAVE_X86"] if is_x86() else [])]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as name:
        work = Path(name)

        def compile_one(step: Step) -> str:
            out = str(work / step.object_name)
            source = str(sources / step.source)
            _run([*compiler.command, *FLAGS, *defines, *step.flags, *extra, "-c", source, "-o", out])
            return out

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(compile_one, steps(sources)))
        library = work / target.name
        _run(
            [
                *compiler.command,
                *extra,
                "-shared",
                *objects,
                "-o",
                str(library),
                *compiler.link_flags,
                "-lpthread",
                "-lm",
            ]
        )
        library.replace(target)


def build(target: Path) -> Compiler:
    """Build with the first compiler that works."""
    failures = []
    for compiler in compilers():
        try:
            compile_library(target, compiler)
        except (BuildError, OSError, subprocess.TimeoutExpired) as error:
            failures.append(f"{compiler}: {error}")
        else:
            return compiler
    raise BuildError(_explain(failures))


def _explain(failures: Sequence[str]) -> str:
    tried = "\n".join(failures) or "no compiler was found"
    return (
        "rocade's native CPU library is missing and could not be built. Either install a wheel that holds it "
        "(pip install --only-binary rocade-kernels rocade-kernels), or give it a C++20 compiler: "
        "g++ >= 12, clang++, or "
        f"pip install 'rocade-kernels[compile]' (ROCADE_CXX names one). Tried:\n{tried}"
    )


def check_private(folder: Path) -> None:
    """Refuse a folder from which others could make this process load their code.

    The folder itself must be ours alone; what holds it may be our group's, as where every user has one.
    """
    own, above = folder.stat(), folder.parent.stat()
    shared = own.st_uid != os.getuid() or own.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    open_above = above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX
    if shared or open_above:
        raise BuildError(
            f"{folder.parent if open_above else folder} belongs to another user or is writable by others, so "
            "no library in it can be trusted; remove those rights or set ROCADE_CACHE_DIR to a private folder"
        )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # released by the system when the process dies
        yield


def cached_library() -> Path:
    """The library for the sources as they are, built into the cache when it is not there."""
    try:
        folder = _settings.cache_dir() / "native"
    except RuntimeError as error:  # no home: a user id that the system does not know, as in some containers
        raise BuildError(f"{error} Set {_settings.CACHE_DIR.name} to a private folder") from error
    target = folder / f"librocade_cpu-{source_hash()}.so"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        check_private(folder)
        if target.exists():
            return target
        with _locked(folder / "build.lock"):
            if not target.exists():
                began = time.monotonic()
                compiler = build(target)
                LOG.warning("built %s with %s in %.1f s", target, compiler, time.monotonic() - began)
    except OSError as error:
        raise BuildError(_explain([f"the cache folder {folder} cannot be used: {error}"])) from error
    return target
