"""Planted faults: each wait and barrier of whole kernels removed in turn, too small buffers and LDS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.emulator import hip_kernels, triton_cases

import rocade_emulator as emu

Launch = Callable[..., tuple[emu.Result, list[Any]]]
STEP_LIMIT = 2_000_000  # a kernel without a barrier may loop for ever


@dataclass(frozen=True)
class Subject:
    """A kernel to break: its program, and how to run a version of it on fresh tensors."""

    program: emu.Program
    run: Launch


def transpose(target: str) -> Subject:
    program = hip_kernels.program(target)

    def run(version: emu.Program, **options: Any) -> tuple[emu.Result, list[Any]]:
        x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
        args = [x, np.zeros_like(x), 64]
        return emu.launch(version, "transpose", 4, 256, args, **options), args

    return Subject(program, run)


def block_sum(target: str) -> Subject:
    program = hip_kernels.program(target)

    def run(version: emu.Program, **options: Any) -> tuple[emu.Result, list[Any]]:
        args = [np.arange(512, dtype=np.float32), np.zeros(2, np.float32)]
        return emu.launch(version, "block_sum", 2, 256, args, **options), args

    return Subject(program, run)


def from_triton(name: str, target: str) -> Subject:
    from tests.emulator import triton_kernels  # skips the test where triton is not installed

    case = triton_cases.case(name, "fp16")
    kernel = triton_kernels.compiled(case.kernel, target, case.types, case.constants, case.warps)

    def run(version: emu.Program, **options: Any) -> tuple[emu.Result, list[Any]]:
        args = [*triton_cases.case(name, "fp16").args, None, None]
        lds = kernel.dynamic_lds
        return emu.launch(
            version, kernel.name, case.grid, kernel.block, args, dynamic_lds=lds, **options
        ), args

    return Subject(kernel.program, run)


SUBJECTS: dict[str, Callable[[str], Subject]] = {
    "transpose": transpose,
    "block_sum": block_sum,
    "softmax": lambda target: from_triton("softmax", target),
    "cumsum_argmax": lambda target: from_triton("cumsum_argmax", target),
    "matmul": lambda target: from_triton("matmul", target),
    "attention": lambda target: from_triton("attention", target),
}


def executed(subject: Subject, mnemonic: str) -> list[int]:
    """Where instructions of a mnemonic ran, in a run without a finding."""
    seen: set[int] = set()

    def see(step: Any) -> None:  # noqa: ANN401
        if step.instruction.startswith(mnemonic):
            seen.add(step.pc)

    result, _ = subject.run(subject.program, trace=see)
    assert not result.reports, result.describe()
    return sorted(seen)


def reported(subject: Subject, pc: int) -> bool:
    """Whether a run without the instruction at `pc` finds a fault under one of two schedules."""
    broken = subject.program.without([pc])
    for schedule in ("round_robin", "run_to_barrier"):
        try:
            result, _ = subject.run(broken, schedule=schedule, step_limit=STEP_LIMIT)
        except emu.EmulationError:
            return True
        if result.errors:
            return True
    return False


def same_results(subject: Subject, pc: int) -> bool:
    broken = subject.program.without([pc])
    _, wanted = subject.run(subject.program)
    runs = (
        {},
        {"schedule": "run_to_barrier"},
        {"quantum": 64},
        {"schedule": "random", "quantum": 30, "seed": 1},
    )
    for options in runs:
        _, got = subject.run(broken, **options)
        for a, b in zip(wanted, got, strict=True):
            if isinstance(a, np.ndarray) and not np.array_equal(a, b, equal_nan=True):
                return False
    return True


# Waits and barriers that nothing relies on, counted in this compiler's code: another wait covers the same
# loads in time, or every wave reads only what it wrote itself.
REDUNDANT = {("gfx950", "matmul"): 3, ("gfx950", "attention"): 5}


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("target", hip_kernels.TARGETS)
def test_each_wait_and_barrier_is_missed(target: str, name: str) -> None:
    subject = SUBJECTS[name](target)
    places = executed(subject, "s_waitcnt") + executed(subject, "s_barrier")
    assert len(places) > 2
    silent = [pc for pc in places if not reported(subject, pc)]
    texts = {inst.pc: inst.text for inst in subject.program.instructions}
    assert len(silent) <= REDUNDANT.get((target, name), 0), [(hex(pc), texts[pc]) for pc in silent]
    for pc in silent:
        assert same_results(subject, pc), f"0x{pc:x} {texts[pc]} changes results, but is not reported"


@pytest.mark.parametrize("target", hip_kernels.TARGETS)
def test_short_buffers(target: str) -> None:
    program = hip_kernels.program(target)
    x = np.zeros(512, np.float32)
    for args, where in (
        ([x[:500], np.zeros(2, np.float32)], "argument 0"),
        ([x, np.zeros(1, np.float32)], "argument 1"),
    ):
        result = emu.launch(program, "block_sum", 2, 256, args)
        assert {(report.check, report.severity) for report in result.reports} == {("bounds", "error")}
        assert f"bytes past the end of {where}" in result.describe()


@pytest.mark.parametrize("target", hip_kernels.TARGETS)
def test_too_little_lds(target: str) -> None:
    from tests.emulator import triton_kernels

    case = triton_cases.case("matmul", "fp16")
    kernel = triton_kernels.compiled(case.kernel, target, case.types, case.constants, case.warps)
    assert kernel.dynamic_lds > 64
    result = kernel.launch(case.grid, case.args, dynamic_lds=kernel.dynamic_lds - 64)
    assert any(report.check == "bounds" and "LDS" in report.detail for report in result.errors), (
        result.describe()
    )
