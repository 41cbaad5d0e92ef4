"""The core under AddressSanitizer and UBSan: damaged files, random programs, and real kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.emulator import hip_kernels
from tests.emulator.aiter import cache_folder

from rocade_emulator import _assembler, _build, _settings

FLAGS = (
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g1"),
)
SECONDS = 6.0  # of processor time for noise, a target
KERNEL_TESTS = ("test_hip.py", "test_launch.py", "test_ops_ds.py", "test_ops_vmem.py")

pytestmark = pytest.mark.asan


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which Python loads a core built with sanitizers. Objects are kept between runs."""
    gxx = shutil.which("g++")
    if gxx is None:
        pytest.skip("needs g++ and its sanitizers")
    library = tmp_path_factory.mktemp("asan") / "core.so"
    objects = cache_folder() / "sanitized-objects"
    _build.compile_library(library, _build.Compiler((gxx,), ()), "plain", objects, FLAGS)
    # Both come first: the sanitizer wraps the C library's functions and the one that throws.
    found = [
        subprocess.run(
            [gxx, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    return os.environ | {
        "LD_PRELOAD": " ".join(found),
        "ASAN_OPTIONS": "detect_leaks=0",  # of the interpreter
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # so that each of Python's objects is watched, too
        _settings.LIBRARY.name: str(library),
    }


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    root = Path(__file__).parents[2]
    return subprocess.run(
        command, env=environment, cwd=root, capture_output=True, text=True, timeout=300, check=False
    )


def test_an_overrun_is_seen(environment: dict[str, str]) -> None:
    done = run(environment, "tests.emulator.sanitized_run", "overrun", "", "0", "0")
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr


@pytest.mark.parametrize("target", hip_kernels.TARGETS)
def test_noise(environment: dict[str, str], target: str, tmp_path: Path) -> None:
    whole = tmp_path / "kernels.co"
    whole.write_bytes(_assembler.assemble(hip_kernels.assembly(target), target))
    done = run(environment, "tests.emulator.sanitized_run", target, str(whole), "1", str(SECONDS))
    assert done.returncode == 0, done.stderr[-6000:]
    texts, decoded, programs, instructions, files, readable = map(int, done.stdout.split())
    assert decoded > 1000 * texts > 0
    assert instructions > 2 * programs > 200, "random programs stop at once"
    assert 0 < readable < files, "damage is always or never fatal"


def test_kernels(environment: dict[str, str]) -> None:
    files = [f"tests/emulator/{name}" for name in KERNEL_TESTS]
    done = run(environment, "pytest", "-q", "-p", "no:cacheprovider", *files)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
