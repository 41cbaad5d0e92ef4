"""Builds the native library (CPU kernels, launch replay, AITER's loader) into a wheel or, on demand, a cache.

Safe under many processes: one builds, under a lock that dies with it; a finished library appears by rename.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rocade_kernels import _cache, _settings
from rocade_kernels._cache import LOG, BuildError

SOURCES = Path(__file__).parent
# Of sources; evidence of the CPU kernels is bound to the first alone.
FOLDERS = ("cpu", "planner", "replay", "aiter/loader")
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
KERNELS = "cpu/kernels.cpp"

# The oldest C library that wheels built with zig run on.
ZIG_TARGET = "x86_64-linux-gnu.2.28"


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


def _files(sources: Path, pattern: str) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((sources / folder).glob(pattern))]


def source_hash(sources: Path = SOURCES) -> str:
    """Hash of everything that decides what the library does: sources, headers and flags."""
    digest = hashlib.sha256()
    for path in _files(sources, "*.[ch]*"):
        digest.update(path.relative_to(sources).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(repr((FLAGS, sorted(ISA_FLAGS.items()), platform.machine())).encode())
    return digest.hexdigest()[:16]


def zig() -> Compiler | None:
    """The compiler in the package ziglang, if it is installed. Its target fixes the C library it asks for."""
    target = ("-target", ZIG_TARGET) if is_x86() else ()
    command = _cache.ziglang("c++", *target)
    return Compiler(command, ()) if command else None  # its own C++ library is linked in, statically


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
    rest = [Step(str(p.relative_to(sources)), f"{p.stem}.o") for p in _files(sources, "*.cpp")]
    return kernels + [step for step in rest if step.source != KERNELS]


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
            _cache.run([*compiler.command, *FLAGS, *defines, *step.flags, *extra, "-c", source, "-o", out])
            return out

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(compile_one, steps(sources)))
        library = work / target.name
        _cache.run(
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
        except (BuildError, OSError) as error:
            failures.append(f"{compiler}: {error}")
        else:
            return compiler
    raise BuildError(_explain(failures))


def _explain(failures: Sequence[str]) -> str:
    return _cache.missing(
        "rocade's native CPU library",
        "g++ >= 12, clang++, or pip install 'ziglang>=0.17.1' (ROCADE_CXX names one)",
        failures,
    )


def cached_library() -> Path:
    """The library for the sources as they are, built into the cache when it is not there."""
    name = f"librocade_cpu-{source_hash()}.so"
    try:
        folder = _cache.private_folder("native")
        target = folder / name
        if target.exists():
            return target
        with _cache.locked(folder / "build.lock"):
            if not target.exists():
                began = time.monotonic()
                compiler = build(target)
                LOG.warning("built %s with %s in %.1f s", target, compiler, time.monotonic() - began)
    except OSError as error:
        raise BuildError(
            _explain([f"the cache folder {_cache.folder('native')} cannot be used: {error}"])
        ) from error
    return target
