"""Several host threads give the same results, the same counters and the same findings as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.emulator import aiter, hip_kernels

import rocade_emulator as emu

COUNTS = [1, 2, 3]


@pytest.mark.parametrize("target", hip_kernels.TARGETS)
def test_forward_attention(target: str) -> None:
    case = aiter.make(1, (4, 2), (300, 256), 128, False)
    seen = []
    for threads in COUNTS:
        case.out[:], case.lse[:] = 0, 0
        result = aiter.launch(target, case, threads=threads)
        assert not result.reports, result.describe()
        seen.append((case.out.tobytes(), case.lse.tobytes(), result.counters))
    assert seen[1:] == seen[:1] * (len(COUNTS) - 1)


@pytest.mark.parametrize("target", hip_kernels.TARGETS)
def test_memory_that_starts_undefined(target: str) -> None:
    """All threads write what is next to each other in the map of defined bytes; nothing gets lost there."""
    n = 4096
    x, y = (np.arange(n, dtype=np.int32) for _ in range(2))
    program = hip_kernels.program(target)
    for threads in COUNTS:
        y[:] = 0
        result = emu.launch(program, "scratch", n // 64, 64, [x, y, n], threads=threads, undefined=(1,))
        assert not result.reports, result.describe()
    bytes_out = np.zeros(8, np.float32)
    wanted = emu.launch(program, "block_sum", 8, 256, [np.ones(2048, np.float32), bytes_out], threads=1)
    again = emu.launch(program, "block_sum", 8, 256, [np.ones(2048, np.float32), bytes_out], threads=4)
    assert wanted.counters.by_unit == again.counters.by_unit


@pytest.mark.parametrize("target", hip_kernels.TARGETS)
def test_findings(target: str) -> None:
    """A buffer that is too short for the last workgroups."""
    x, out = np.ones(2048, np.float32), np.zeros(5, np.float32)
    program = hip_kernels.program(target)

    def findings(threads: int) -> list[tuple[Any, ...]]:
        result = emu.launch(program, "block_sum", 8, 256, [x, out], threads=threads)
        return [(r.check, r.pc, r.count, r.detail) for r in result.reports]

    first = findings(1)
    assert first
    assert all(findings(threads) == first for threads in COUNTS)
