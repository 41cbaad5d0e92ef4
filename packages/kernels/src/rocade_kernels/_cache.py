"""What the builders share: a private cache, locks, files written whole, and the runner of compilers."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import logging
import os
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rocade_kernels import _settings

LOG = logging.getLogger("rocade_kernels")
COMPILE_SECONDS = 1200  # one command; the first link of zig builds its runtime, slowly on a busy machine
SHOWN_CHARS = 1500  # of a compiler's complaints
UNFINISHED = ".new-"  # how the names of files that are being written begin


class BuildError(RuntimeError):
    """Native code is missing and could not be built. The text says what was tried and both ways to get it."""


class CompilerMissingError(BuildError):
    """As `BuildError`, and the reason is that this machine has no compiler for it."""


def run(command: Sequence[str], *, cwd: Path | None = None) -> str:
    """Run a compiler and return what it printed.

    Raises:
        BuildError: it failed, cannot be started, or takes longer than `COMPILE_SECONDS`.
    """
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # a compiler may speak in any encoding
            timeout=COMPILE_SECONDS,
            check=False,
            cwd=cwd,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{shown}\n{error}") from error
    said = done.stdout + done.stderr
    if done.returncode:
        raise BuildError(f"{shown}\n{said[:SHOWN_CHARS]}")
    return said


def ziglang(*arguments: str) -> tuple[str, ...] | None:
    """A command of the package ziglang, or None where it is not installed."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None:
        return None
    binary = Path(spec.origin or "").with_name("zig")
    start = (str(binary),) if os.access(binary, os.X_OK) else (sys.executable, "-m", "ziglang")
    return (*start, *arguments)


def check_private(folder: Path) -> None:
    """Refuse a folder from which others could make this process load their code.

    The folder itself must be ours alone; what holds it may be our group's, as where every user has one.

    Raises:
        BuildError: it, or the folder above it, is open to others.
    """
    own, above = folder.stat(), folder.parent.stat()
    shared = own.st_uid != os.getuid() or own.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    open_above = above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX
    if shared or open_above:
        raise BuildError(
            f"{folder.parent if open_above else folder} belongs to another user or is writable by others, so "
            "no library in it can be trusted; remove those rights or set ROCADE_CACHE_DIR to a private folder"
        )


def folder(name: str) -> Path:
    """A folder of the cache; it may not exist yet.

    Raises:
        BuildError: this process has no home to keep a cache in.
    """
    try:
        return _settings.cache_dir() / name
    except RuntimeError as error:  # a user id that the system does not know, as in some containers
        raise BuildError(f"{error} Set {_settings.CACHE_DIR.name} to a private folder") from error


def private_folder(name: str) -> Path:
    """A folder of the cache, made when it is not there and ours alone.

    Raises:
        BuildError: others can write to it, or this process has no home.
        OSError: it cannot be made or looked at.
    """
    place = folder(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    check_private(place)
    return place


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`. Others wait; the system releases it when the process dies."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, also to other processes; `OSError` when it cannot be."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def missing(what: str, compilers: str, tried: Sequence[str]) -> str:
    """The text of a `BuildError`: what is missing, both ways to get it, and a line for each thing tried."""
    lines = "\n".join(tried) or "no compiler was found"
    return (
        f"{what} is missing and could not be built. Either install a wheel of rocade-kernels that "
        f"holds it, or give it a compiler: {compilers}. Tried:\n{lines}"
    )
