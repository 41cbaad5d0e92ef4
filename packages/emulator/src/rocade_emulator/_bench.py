"""How fast the emulator runs: instructions a second beside a yardstick of the same run, and the cold start.

Times are of the processor, not of the clock on the wall, so that a busy machine changes them little.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rocade_emulator import _assembler, _native
from rocade_emulator._launch import launch
from rocade_emulator._program import Program
from rocade_emulator._result import Result
from rocade_emulator._sparse import SparseBuffer

SOURCE = Path(__file__).with_name("_bench.hip")
ITEMS, CHUNK_BYTES, SUM_BYTES = 256, 8 * 16, 16 * 4  # of the kernel there, a work item
GROUPS, STEPS = 4, 16
YARDSTICK = 1_000_000  # loops of 64-lane multiply-adds at a time
COLD_STARTS = 5

Run = Callable[[str], Result]  # runs a kernel once with "all" or with "none" of the checks


@dataclass(frozen=True, slots=True)
class Speed:
    """Rates in millions a second of processor time on one thread, each the best of several runs.

    The ratio is wave instructions with all checks over the yardstick: 64-lane multiply-adds in plain C++.
    """

    name: str
    instructions: int
    all_checks: float
    no_checks: float
    yardstick: float
    cold_start_ms: float

    @property
    def ratio(self) -> float:
        """Rate with all checks over the yardstick."""
        return self.all_checks / self.yardstick

    def line(self) -> str:
        """For people."""
        return (
            f"{self.name}: {self.instructions} wave instructions, {self.all_checks:.2f} M/s with all checks, "
            f"{self.no_checks:.2f} M/s with none; yardstick {self.yardstick:.0f} M/s, "
            f"ratio {self.ratio:.4f}; cold start {self.cold_start_ms:.1f} ms"
        )

    def record(self) -> dict[str, object]:
        """For programs."""
        return {**asdict(self), "ratio": self.ratio}


def measure(name: str, run: Run, cold: Callable[[], object], seconds: float = 2.0) -> Speed:
    """Run a kernel with and without checks in turns with the yardstick, for about `seconds` in all."""
    lib = _native.library()
    lib.emu_yardstick(YARDSTICK)
    starts = min(_seconds(cold) for _ in range(COLD_STARTS))
    instructions, best = 0, {"all": 0.0, "none": 0.0, "yardstick": 0.0}
    end = time.process_time() + seconds
    while not instructions or time.process_time() < end:
        for checks in ("all", "none"):
            began = time.process_time()
            instructions = run(checks).counters.instructions
            best[checks] = max(best[checks], instructions / (time.process_time() - began))
        spent = _seconds(lambda: lib.emu_yardstick(YARDSTICK))
        best["yardstick"] = max(best["yardstick"], YARDSTICK / spent)
    all_checks, none, yardstick = (rate / 1e6 for rate in best.values())
    return Speed(name, instructions, all_checks, none, yardstick, starts * 1e3)


def _seconds(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def _code_object(target: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="rocade-emulator-") as folder:
        out = Path(folder) / "bench.s"
        clang = _assembler.assembler().clang
        flags = (
            "-x",
            "hip",
            "--cuda-device-only",
            f"--offload-arch={target}",
            "-nogpuinc",
            "-nogpulib",
            "-O3",
        )
        command = [*clang, *flags, "-std=c++20", "-S", str(SOURCE), "-o", str(out)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_assembler.SECONDS, check=False
        )
        if done.returncode:
            raise _assembler.AssemblyError(f"the benchmark's kernel does not compile:\n{done.stderr}")
        return _assembler.assemble(out.read_text(), target)


def matrix_kernel(target: str, seconds: float) -> Speed:
    """Speed of the kernel in `_bench.hip`: matrix products, LDS, exponentials and barriers.

    Raises:
        AssemblyError: there is no clang, or it fails.
    """
    code = _code_object(target)
    data, out = SparseBuffer(ITEMS * CHUNK_BYTES), SparseBuffer(GROUPS * ITEMS * SUM_BYTES)
    data.write(bytes.fromhex("803f003f") * (data.size // 4))  # 1 and 0.5

    def start(program: Program, groups: int, steps: int, checks: str) -> Result:
        return launch(program, None, groups, ITEMS, [data, out, steps], checks=checks).check()

    program = Program.from_bytes(code, target)
    return measure(
        f"{target} matrix kernel",
        lambda checks: start(program, GROUPS, STEPS, checks),
        lambda: start(Program.from_bytes(code, target), 1, 1, "all"),
        seconds,
    )


def speeds(targets: list[str], seconds: float) -> Iterator[Speed]:
    """Each target in turn."""
    for target in targets:
        yield matrix_kernel(target, seconds)
