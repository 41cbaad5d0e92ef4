"""Malformed plan arrays under AddressSanitizer: the GPU planner refuses or plans them, no stray access."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rocade_kernels import _cpu_build

FUZZ = Path(__file__).parent / "fuzz.cpp"
SANITIZE = (
    "-O1",
    "-g1",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
)
ROUNDS = 3000
OK, BAD_ARGUMENT, BAD_LEVELS, BAD_MASK, TOO_LONG = 0, 1, 3, 4, 5


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gxx = shutil.which("g++")
    if gxx is None:
        pytest.skip("needs g++")
    sources = [
        *(_cpu_build.SOURCES / "planner").glob("*.cpp"),
        _cpu_build.SOURCES / "cpu" / "planner_tree.cpp",
    ]
    target = tmp_path_factory.mktemp("asan") / "fuzz"
    command = [gxx, *_cpu_build.FLAGS, *SANITIZE, *map(str, sources), str(FUZZ), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


@pytest.mark.asan
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_read_or_written_out_of_bounds(fuzzer: Path, seed: int) -> None:
    done = subprocess.run(
        [str(fuzzer), str(ROUNDS), str(seed)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts = [int(word) for word in done.stdout.split()]
    assert counts[OK] > ROUNDS / 10  # the damage is not so bad that nothing is planned
    for status in (BAD_ARGUMENT, BAD_LEVELS, BAD_MASK, TOO_LONG):
        assert counts[status] > 0, f"status {status} never reached: {counts}"
