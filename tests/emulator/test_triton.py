"""Kernels compiled by Triton in this test: right against float64, under every schedule, without a finding."""

from __future__ import annotations

from typing import Any

import numpy as np
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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("target", "kind"), [(target, kind) for target, kinds in FP8.items() for kind in kinds]
)
def test_fp8_attention(target: str, kind: str, causal: bool) -> None:
    """Queries, keys, values and weights in 8 bits; the output's error is that of rounding the weights."""
    torch = needs.module("torch")
    dtype = getattr(torch, FP8[target][kind])
    heads, group, seq_q, seq_k, dim = 2, 2, 70, 100, 64
    generator = torch.Generator().manual_seed(2)
    shapes = ((heads, seq_q, dim), (heads // group, seq_k, dim), (heads // group, seq_k, dim))
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    out = torch.zeros(heads, seq_q, dim)
    types = (*(f"*{kind}",) * 3, "*fp32", "i32", "i32", "i32", "fp32")
    constants = (("causal", causal), ("dim", dim), ("tile_m", 64), ("tile_n", 64))
    made = triton_kernels.compiled("attention", target, types, constants)
    result = made.launch((2, heads), [q, k, v, out, seq_q, seq_k, group, dim**-0.5])
    assert not result.reports, result.describe()
    assert result.counters.by_unit["mfma"] > 0
    exact_q, exact_k, exact_v = (x.double() for x in (q, k, v))
    logits = exact_q @ exact_k.repeat(group, 1, 1).transpose(1, 2) * dim**-0.5
    if causal:
        visible = torch.arange(seq_k)[None] <= torch.arange(seq_q)[:, None] + seq_k - seq_q
        logits = logits.masked_fill(~visible, -torch.inf)
    weights, values = logits.softmax(-1), exact_v.repeat(group, 1, 1)
    # Weights relative to the largest so far are rounded to 3 or 2 bits of fraction: terms are off by up to
    # 2^-4 or 2^-3 of their size.
    rounding = 2.0**-4 if "e4" in kind else 2.0**-3
    limit = rounding * (weights @ values.abs()) + 0.01
    assert ((out.double() - weights @ values).abs() <= limit).all()
    # A tighter look at the whole: rounding errors of many terms do not add up.
    assert (
        out.double() - weights @ values
    ).square().mean().sqrt() < 0.5 * rounding * values.square().mean().sqrt()


FP4_VALUES = (0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6)


@pytest.mark.parametrize("kinds", [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e2m1"), ("e2m1", "e4m3")])
def test_scaled_matmul(kinds: tuple[str, str]) -> None:
    """Triton lays out operands and scales as the hardware's block-scaled matrix instructions ask for."""
    torch = needs.module("torch")
    tile, k = 64, 256
    rng = np.random.default_rng(4)

    def operand(kind: str) -> tuple[Any, np.ndarray]:
        if kind == "e2m1":
            codes = rng.integers(0, 16, (tile, k))
            return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8), np.array(FP4_VALUES)[codes]
        dtype = torch.float8_e4m3fn if kind == "e4m3" else torch.float8_e5m2
        values = torch.from_numpy(rng.standard_normal((tile, k))).to(dtype)
        return values.view(torch.uint8).numpy(), values.double().numpy()

    (a, exact_a), (b, exact_b) = (operand(kind) for kind in kinds)
    scales = [rng.integers(122, 132, (tile, k // 32)).astype(np.uint8) for _ in range(2)]
    exact_a, exact_b = (
        x * np.repeat(2.0 ** (s.astype(int) - 127), 32, 1)
        for x, s in zip((exact_a, exact_b), scales, strict=True)
    )
    out = np.zeros((tile, tile), np.float32)
    types = ("*u8",) * 4 + ("*fp32", "i32")
    constants = (("kind_a", kinds[0]), ("kind_b", kinds[1]), ("tile", tile))
    made = triton_kernels.compiled("scaled_matmul", "gfx950", types, constants)
    assert any("v_mfma_scale_f32" in inst.text for inst in made.program.instructions)
    result = made.launch(1, [a, b, *scales, out, k])
    assert not result.reports, result.describe()
    magnitude = np.abs(exact_a) @ np.abs(exact_b).T
    assert (np.abs(out - exact_a @ exact_b.T) <= magnitude * 2.0**-20).all()
