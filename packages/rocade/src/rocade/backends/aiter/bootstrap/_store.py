"""Where the bootstrap keeps things: libraries by what they fit, logs, locks, verdicts, and builds at work.

All is in `aiter` in rocade's cache folder, which is this user's alone.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from rocade.backends.aiter.bootstrap._errors import BootstrapError
from rocade_kernels import _cache

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


@dataclass(frozen=True, slots=True)
class Store:
    """The folders for one GPU and toolchain. They exist."""

    tag: str
    libraries: Path
    locks: Path
    logs: Path
    verdicts: Path  # of all GPUs and toolchains: a verdict is about a library's bytes
    work: Path

    def named(self, place: str, module: str, suffix: str) -> Path:
        """A file or folder for one library of this toolchain."""
        folder: Path = getattr(self, place)
        return folder / f"{self.tag}-{module}{suffix}"


def tag(target: str, version: str) -> str:
    """All that a library of AITER is bound to besides its name: GPU, AITER, ROCm, torch and Python."""
    parts = (
        target,
        f"aiter{version}",
        f"rocm{torch.version.hip or 'none'}",
        f"torch{torch.__version__}",
        f"py{platform.python_version_tuple()[0]}{platform.python_version_tuple()[1]}",
    )
    return _UNSAFE.sub("_", "-".join(parts))


def library_folder(target: str, version: str) -> Path:
    """Where built libraries are; the folder may not exist.

    Raises:
        BootstrapError: this process has no home to keep a cache in.
    """
    return _root() / "libraries" / tag(target, version)


def verdict_folder() -> Path:
    """Where verdicts are; the folder may not exist. BootstrapError as `library_folder`."""
    return _root() / "verdicts"


def _root() -> Path:
    try:
        return _cache.folder("aiter")
    except _cache.BuildError as error:
        raise BootstrapError(str(error)) from error


def opened(target: str, version: str) -> Store:
    """The folders, made where they are not there.

    Raises:
        BootstrapError: they cannot be made, or others can write to them.
    """
    try:
        root = _cache.private_folder("aiter")
        found = Store(
            tag(target, version),
            library_folder(target, version),
            *(root / name for name in ("locks", "logs", "verdicts", "work")),
        )
        for folder in (
            found.libraries.parent,
            found.libraries,
            found.locks,
            found.logs,
            found.verdicts,
            found.work,
        ):
            folder.mkdir(mode=0o700, exist_ok=True)
    except (_cache.BuildError, OSError) as error:
        raise BootstrapError(f"the cache folder cannot be used: {error}") from error
    return found
