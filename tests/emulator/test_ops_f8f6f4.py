"""Matrix instructions over 8-, 6- and 4-bit floats, plain and scaled, against numpy in float64."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from tests.emulator import asm_kernels, isa_run
from tests.emulator.isa_run import LANES, State
from tests.emulator.pcode_values import BF8, FP8

# Types by the number in cbsz and blgp: bits, and the value of each code.
BITS = (8, 8, 6, 6, 4)
FP4 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def _small(bits: int, exponent_bits: int, bias: int) -> np.ndarray:
    """OCP's microscaling formats without infinity: values of all codes."""
    fraction_bits = bits - 1 - exponent_bits
    codes = np.arange(1 << bits)
    exponent = codes >> fraction_bits & (1 << exponent_bits) - 1
    fraction = (codes & (1 << fraction_bits) - 1) / (1 << fraction_bits)
    magnitude = np.where(exponent, (1 + fraction) * 2.0 ** (exponent - bias), fraction * 2.0 ** (1 - bias))
    return np.where(codes >> bits - 1, -magnitude, magnitude)


TABLES = (
    np.array([FP8["gfx950"].decode(code) for code in range(256)]),
    np.array([BF8["gfx950"].decode(code) for code in range(256)]),
    _small(6, 2, 1),
    _small(6, 3, 3),
    np.array([*FP4, *(-x for x in FP4)]),
)
C, D, A, B, SCALES = 0, 16, 32, 40, 48
WAIT = "s_nop 15\ns_nop 7"
SHAPES = ((16, 128), (32, 64))
TYPES = list(itertools.product(range(5), repeat=2))


def test_small_tables() -> None:
    """The largest values and the smallest steps of OCP's tables."""
    assert TABLES[2].max() == 7.5
    assert TABLES[3].max() == 28
    assert np.sort(np.abs(TABLES[2]))[2] == 0.125
    assert np.sort(np.abs(TABLES[3]))[2] == 0.0625
    assert [len(set(np.abs(t))) for t in TABLES[2:]] == [32, 32, 8]


@dataclass(slots=True)
class Problem:
    """Start state, and D with the sum of absolute values."""

    state: State
    expected: np.ndarray
    magnitude: np.ndarray
    text: str


def _pack(v: np.ndarray, first: int, codes: np.ndarray, bits: int) -> None:
    """Codes [lane, 32] into the bits of consecutive registers."""
    for e in range(codes.shape[1]):
        for bit in range(bits):
            at = e * bits + bit
            v[first + at // 32] |= ((codes[:, e] >> bit & 1) << at % 32).astype(np.uint32)


def _operand(rng: np.random.Generator, v: np.ndarray, first: int, kind: int, m: int, k: int) -> np.ndarray:
    """A random [m, k] in registers: a lane has 32 of a row, 8-bit ones in two runs. Returns its values."""
    good = np.nonzero(np.isfinite(TABLES[kind]) & (np.abs(TABLES[kind]) < 300))[0]
    codes = rng.choice(good, (m, k))
    lane = np.arange(LANES)
    columns = [
        k // 2 * (e // 16) + 16 * (lane // m) + e % 16 if BITS[kind] == 8 else 32 * (lane // m) + e
        for e in range(32)
    ]
    by_lane = np.stack([codes[lane % m, column] for column in columns], 1)
    _pack(v, first, by_lane, BITS[kind])
    return TABLES[kind][codes]


def problem(m: int, k: int, kinds: tuple[int, int], seed: int, select: tuple[int, int] | None) -> Problem:
    """`select`: the byte of the scale registers for A and B; None without scales."""
    rng = np.random.default_rng(seed)
    v = np.zeros((64, LANES), np.uint32)
    a, b = (_operand(rng, v, first, kind, m, k) for first, kind in zip((A, B), kinds, strict=True))
    c = rng.standard_normal((m, m)).astype(np.float32)
    rows, cols = np.indices((m, m)).reshape(2, -1)
    lane, reg = (
        (16 * (rows // 4) + cols, rows % 4)
        if m == 16
        else (32 * (rows // 4 % 2) + cols, 4 * (rows // 8) + rows % 4)
    )
    v[C + reg, lane] = c.view(np.uint32)[rows, cols]
    if select is not None:
        v[SCALES : SCALES + 2] = rng.integers(0, 2**32, (2, LANES), dtype=np.uint32)
        for operand, values in enumerate((a, b)):
            codes = rng.integers(120, 134, (m, k // 32))
            at = np.arange(LANES)
            shift = 8 * select[operand]
            held = v[SCALES + operand] & np.uint32(~(0xFF << shift) & 0xFFFFFFFF)
            v[SCALES + operand] = held | (codes[at % m, at // m] << shift).astype(np.uint32)
            values *= np.repeat(2.0 ** (codes - 127), 32, 1)
    expected = c + a @ b.T
    magnitude = np.abs(c) + np.abs(a) @ np.abs(b).T
    widths = [BITS[kind] for kind in kinds]  # as many registers: 32 elements of that many bits
    size = m * m // LANES
    sa, sb = (f"v[{first}:{first + bits - 1}]" for first, bits in zip((A, B), widths, strict=True))
    text = f"v[{D}:{D + size - 1}], {sa}, {sb}, v[{C}:{C + size - 1}]"
    tail = f"cbsz:{kinds[0]} blgp:{kinds[1]}"
    if select is None:
        line = f"v_mfma_f32_{m}x{m}x{k}_f8f6f4 {text} {tail}"
    else:
        low, high = (",".join(str(s >> bit & 1) for s in select) for bit in (0, 1))
        line = (
            f"v_mfma_scale_f32_{m}x{m}x{k}_f8f6f4 {text}, v{SCALES}, v{SCALES + 1} "
            f"op_sel:[{low},0] op_sel_hi:[{high},0] {tail}"
        )
    return Problem(State(v, exec=0x00FF_3C5A_8001_F00F), expected, magnitude, f"{line}\n{WAIT}")


def check(problems: list[Problem], m: int) -> None:
    outcome = isa_run.run(
        "gfx950",
        [p.text for p in problems],
        [p.state for p in problems],
        [(n, n) for n in range(len(problems))],
    )
    rows, cols = np.indices((m, m)).reshape(2, -1)
    lane, reg = (
        (16 * (rows // 4) + cols, rows % 4)
        if m == 16
        else (32 * (rows // 4 % 2) + cols, 4 * (rows // 8) + rows % 4)
    )
    for p, after in zip(problems, outcome.states, strict=True):
        found = np.ascontiguousarray(after.v[D + reg, lane]).view(np.float32).reshape(m, m)
        error = np.abs(found - p.expected)
        assert (error <= p.magnitude * 2.0**-21).all(), f"{p.text}: off by {error.max()}"
    assert not outcome.reports


@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_products(m: int, k: int) -> None:
    """Every pair of types, EXEC ignored."""
    check([problem(m, k, kinds, n, None) for n, kinds in enumerate(TYPES)], m)


@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_scaled_products(m: int, k: int) -> None:
    """Every pair of types, each with other bytes of the scale registers."""
    check([problem(m, k, kinds, n, (n % 4, n // 4 % 4)) for n, kinds in enumerate(TYPES)], m)


def test_a_scale_of_all_ones_is_nan() -> None:
    p = problem(16, 128, (0, 0), 1, (0, 0))
    p.state.v[SCALES, 5] |= np.uint32(0xFF)  # row 5, the first 32 of k
    outcome = isa_run.run("gfx950", [p.text], [p.state], [(0, 0)])
    words = np.ascontiguousarray(outcome.states[0].v[D : D + 4]).view(np.float32)
    rows = 4 * (np.arange(LANES) // 16)[None] + np.arange(4)[:, None]
    assert (np.isnan(words) == (rows == 5)).all()


@pytest.mark.parametrize(
    ("kinds", "clocks"), [((0, 0), 32), ((1, 4), 32), ((2, 0), 32), ((2, 3), 16), ((4, 4), 16)]
)
def test_clocks(kinds: tuple[int, int], clocks: int) -> None:
    """Peak rates: twice as fast when neither operand has 8 bits."""
    text = problem(16, 128, kinds, 0, None).text
    counters = asm_kernels.launch(asm_kernels.program("gfx950", {"k": text}), "k", "none").counters
    assert counters.mfma_cycles == clocks
