"""Kernels compiled by Triton in this test: right against float64, under every schedule, without a finding."""

from __future__ import annotations

from typing import Any

import pytest
from tests import needs
from tests.emulator import triton_cases, triton_kernels

import rocade_emulator as emu

SCHEDULES: dict[str, dict[str, Any]] = {
    "round_robin": {},
    "run_to_barrier": {"schedule": "run_to_barrier"},
    "random": {"schedule": "random", "quantum": 20, "seed": 5},
}
INTEGER = {"cumsum_argmax", "histogram"}
DTYPES = ("fp16", "bf16")
CASES = [
    (name, dtype) for name in triton_cases.CASES for dtype in (DTYPES[:1] if name in INTEGER else DTYPES)
]


def run(target: str, name: str, dtype: str, **options: Any) -> tuple[triton_cases.Case, emu.Result]:
    case = triton_cases.case(name, dtype)
    kernel = triton_kernels.compiled(case.kernel, target, case.types, case.constants, case.warps)
    return case, kernel.launch(case.grid, case.args, **options)


def check(case: triton_cases.Case) -> None:
    for position, error in case.errors().items():
        assert error <= triton_cases.TOLERANCE[case.dtype], f"output {position} is off by {error}"


@pytest.mark.parametrize(("name", "dtype"), CASES)
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_right_and_clean(target: str, name: str, dtype: str) -> None:
    case, result = run(target, name, dtype)
    assert not result.reports, result.describe()
    check(case)


@pytest.mark.parametrize("schedule", ["run_to_barrier", "random"])
@pytest.mark.parametrize("name", ["softmax", "cumsum_argmax", "matmul", "attention_causal", "decode"])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_right_under_other_schedules(target: str, name: str, schedule: str) -> None:
    case, result = run(target, name, "fp16", **SCHEDULES[schedule])
    assert not result.reports, result.describe()
    check(case)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_loading_arguments_and_preloaded_arguments_agree(target: str) -> None:
    """Hardware enters behind the prologue, with arguments in SGPRs; older firmware runs the prologue."""
    case, result = run(target, "rms_norm", "fp16", preload=False)
    assert result.kernel.preload, "Triton asks for preloading"
    assert not result.reports, result.describe()
    check(case)


# gfx942 has the FNUZ encodings of 8-bit floats, gfx950 the OCP ones: the same bytes mean other numbers.
FP8 = {
    "gfx942": {"fp8e4b8": "float8_e4m3fnuz", "fp8e5b16": "float8_e5m2fnuz"},
    "gfx950": {"fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"},
}


@pytest.mark.parametrize(
    ("target", "kind"), [(target, kind) for target, kinds in FP8.items() for kind in kinds]
)
def test_fp8_matmul(target: str, kind: str) -> None:
    torch = needs.module("torch")
    dtype = getattr(torch, FP8[target][kind])
    m, n, k = 100, 72, 90
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(shape, generator=generator).to(dtype) for shape in ((m, k), (k, n)))
    out = torch.zeros(m, n)
    types = (f"*{kind}", f"*{kind}", "*fp32", "i32", "i32", "i32")
    tiles = (("tile_m", 64), ("tile_n", 64), ("tile_k", 64))
    result = triton_kernels.compiled("matmul", target, types, tiles).launch((2, 2), [a, b, out, m, n, k])
    assert not result.reports, result.describe()
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=0, atol=1e-5)
