"""Malformed plans, tables, masks and merges under AddressSanitizer: refused or computed, no stray access."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocade_kernels import _cpu_build

FUZZ = Path(__file__).parent / "fuzz.cpp"
SANITIZE = (
    "-O1",
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
ROUNDS = 4000
OK, BAD_ARGUMENT, BAD_LEVELS, BAD_MASK = 0, 1, 3, 4
RUN = 8  # statuses of runs start here in the fuzzer's output


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fuzzer with the library's own sources, all instruction sets, built with g++ and its sanitizers."""
    gxx = shutil.which("g++")
    if gxx is None:
        pytest.skip("needs g++")
    work = tmp_path_factory.mktemp("asan")
    flags = [
        *_cpu_build.FLAGS,
        *SANITIZE,
        '-DRK_SOURCE_HASH="fuzz"',
        "-DRK_HAVE_X86",
        f"-I{_cpu_build.SOURCES / 'cpu'}",
    ]

    def compile_one(step: _cpu_build.Step) -> str:
        source, out = _cpu_build.SOURCES / step.source, str(work / step.object_name)
        subprocess.run([gxx, *flags, *step.flags, "-c", str(source), "-o", out], check=True)
        return out

    steps = [*_cpu_build.steps(_cpu_build.SOURCES), _cpu_build.Step(str(FUZZ), "fuzz.o")]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, steps))
    target = work / "fuzz"
    subprocess.run([gxx, *SANITIZE, *objects, "-o", str(target), "-lpthread"], check=True)
    return target


@pytest.mark.asan
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_read_or_written_out_of_bounds(fuzzer: Path, seed: int) -> None:
    done = subprocess.run(
        [str(fuzzer), str(ROUNDS), str(seed)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts = [int(word) for word in done.stdout.split()]
    assert counts[OK] > ROUNDS / 10  # the damage is not so bad that nothing runs
    assert counts[RUN + OK] > ROUNDS / 10
    for status in (BAD_ARGUMENT, BAD_LEVELS, BAD_MASK, RUN + BAD_ARGUMENT, RUN + BAD_MASK):
        assert counts[status] > 0, f"status {status} never reached: {counts}"
