"""Every matrix instruction against numpy in float64, with the register layouts written out here once more."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
from tests.emulator import assembly, isa_run
from tests.emulator.isa_run import LANES, State
from tests.emulator.isa_table import REGISTERS, TARGETS, Row, rows_of
from tests.emulator.pcode_values import BF8, FP8

VECTORS = 80
C, D, A, B = 0, 32, 64, 72  # first registers
BITS = {"f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8, "f64": 64}
WAIT = "s_nop 15\ns_nop 7"  # until the result may be read
MASK = 0x00FF_3C5A_8001_F00F  # EXEC, which these instructions ignore


@dataclass(frozen=True, slots=True)
class Shape:
    """M, N, K, number of blocks, and types of A, B and the sum."""

    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    d: str


def shape_of(mnemonic: str) -> Shape:
    """The mnemonic says it all."""
    match = re.fullmatch(r"v_mfma_(\w+?)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_(\w+?)(?:_(\w+))?", mnemonic)
    assert match, mnemonic
    d, m, n, k, blocks, a, b = match.groups()
    return Shape(int(m), int(n), int(k), int(blocks or 1), a, b or a, d)


def operand_place(
    shape: Shape, side: int, index: np.ndarray, k: np.ndarray, block: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(lane, element within the lane) of A[index][k], or of B[k][index], of a block."""
    per_lane = side * shape.k * shape.blocks // LANES
    if shape.a == "f64":
        return 16 * k + side * block + index, 0 * k
    if shape.blocks > 1:  # a group of lanes per block, all of k in each lane
        return index + side * block, k
    return index + side * (k // per_lane), k % per_lane


def result_place(
    shape: Shape, i: np.ndarray, j: np.ndarray, block: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(lane, element within the lane) of D[i][j] of a block."""
    if shape.d == "f64":
        return (16 * (i % 4) + j, i // 4) if shape.m == 16 else (16 * i + 4 * block + j, 0 * i)
    if shape.m == 4:
        return 4 * block + j, i
    if shape.m == 16:
        return 16 * (i // 4) + j, 4 * block + i % 4
    return 32 * (i // 4 % 2) + j, 16 * block + 4 * (i // 8) + i % 4


def _bits(values: np.ndarray, kind: str) -> np.ndarray:
    """Register patterns of values."""
    if kind == "i8":
        return values.astype(np.int64) & 0xFF
    if kind == "i32":
        return values.astype(np.int64) & 0xFFFFFFFF
    if kind == "f64":
        return values.astype(np.float64).view(np.uint64)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.int64)
    words = values.astype(np.float32).view(np.uint32).astype(np.int64)
    return words >> 16 if kind == "bf16" else words


def random_matrix(
    rng: np.random.Generator, shape: tuple[int, ...], kind: str, target: str
) -> tuple[np.ndarray, np.ndarray]:
    """Values that the type holds exactly, and their patterns."""
    if kind in ("i8", "i32"):
        limit = 128 if kind == "i8" else 1 << 30
        values = rng.integers(-limit, limit, shape)
        return values.astype(np.float64) if kind == "i32" else values, _bits(values, kind)
    if kind in ("fp8", "bf8"):
        form = (FP8 if kind == "fp8" else BF8)[target]
        table = np.array([form.decode(code) for code in range(256)])
        codes = np.nonzero(np.isfinite(table) & (np.abs(table) < 300))[0]
        patterns = rng.choice(codes, shape)
        return table[patterns], patterns
    values = rng.standard_normal(shape)
    if kind == "bf16":
        patterns = _bits(values, kind)
        return (patterns << 16).astype(np.uint32).view(np.float32).astype(np.float64), patterns
    if kind == "xf32":  # ten fraction bits, so that the unit's rounding changes nothing
        values = (
            (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000))
            .view(np.float32)
            .astype(np.float64)
        )
        return values, _bits(values, kind)
    values = values.astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]).astype(np.float64)
    return values, _bits(values, kind)


def place(
    v: np.ndarray, first: int, lane: np.ndarray, element: np.ndarray, patterns: np.ndarray, bits: int
) -> None:
    """Put patterns of `bits` into registers from `first`."""
    if bits == 64:
        v[first + 2 * element, lane] = patterns.astype(np.uint64) & np.uint64(0xFFFFFFFF)
        v[first + 2 * element + 1, lane] = patterns.astype(np.uint64) >> np.uint64(32)
        return
    per = 32 // bits
    words = patterns.astype(np.uint64) << (element % per * bits).astype(np.uint64)
    np.bitwise_or.at(v, (first + element // per, lane), words.astype(np.uint32))


def _grid(*sizes: int) -> list[np.ndarray]:
    return [g.reshape(-1) for g in np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij")]


@dataclass(slots=True)
class Problem:
    """Start state and the product."""

    state: State
    shape: Shape
    expected: np.ndarray  # [block, i, j], float64
    magnitude: np.ndarray  # the same of absolute values


def problem(shape: Shape, target: str, seed: int, *, zero_c: bool) -> Problem:
    """Random matrices in their registers."""
    rng = np.random.default_rng(seed)
    v = np.zeros((VECTORS, LANES), np.uint32)
    total: list[np.ndarray] = []
    for first, side, kind in ((A, shape.m, shape.a), (B, shape.n, shape.b)):
        values, patterns = random_matrix(rng, (shape.blocks, side, shape.k), kind, target)
        block, index, k = _grid(shape.blocks, side, shape.k)
        lane, element = operand_place(shape, side, index, k, block)
        place(v, first, lane, element, patterns[block, index, k], BITS[kind])
        total.append(values.astype(np.float64))
    values, patterns = random_matrix(rng, (shape.blocks, shape.m, shape.n), shape.d, target)
    block, i, j = _grid(shape.blocks, shape.m, shape.n)
    lane, element = result_place(shape, i, j, block)
    place(v, C, lane, element, patterns[block, i, j], 64 if shape.d == "f64" else 32)
    start = np.zeros_like(values, np.float64) if zero_c else values.astype(np.float64)
    expected = start + np.einsum("bik,bjk->bij", *total)
    magnitude = np.abs(start) + np.einsum("bik,bjk->bij", *(np.abs(t) for t in total))
    return Problem(State(v, exec=MASK), shape, expected, magnitude)


def result(p: Problem, after: State) -> np.ndarray:
    """D out of the registers."""
    block, i, j = _grid(p.shape.blocks, p.shape.m, p.shape.n)
    lane, element = result_place(p.shape, i, j, block)
    if p.shape.d == "f64":
        raw = (
            after.v[D + 2 * element, lane].astype(np.uint64)
            | after.v[D + 1 + 2 * element, lane].astype(np.uint64) << 32
        )
        found = raw.view(np.float64)
    else:
        words = np.ascontiguousarray(after.v[D + element, lane])
        found = words.view(np.int32 if p.shape.d == "i32" else np.float32).astype(np.float64)
    return found.reshape(p.expected.shape)


def _range(file: str, first: int, kind: str) -> str:
    count = REGISTERS[kind]
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


def _sequences(row: Row) -> list[tuple[str, bool]]:
    """Vector registers; all accumulation registers; a constant as C. The flag says that C is zero."""
    a, b, c, d = (_range("v", f, k) for f, k in zip((A, B, C, D), (*row.src, row.dst), strict=True))
    plain = f"{row.mnemonic} {d}, {a}, {b}, {c}\n{WAIT}"
    to = [f"v_accvgpr_write_b32 a{k}, v{k}" for k in range(VECTORS)]
    back = [f"v_accvgpr_read_b32 v{k}, a{k}" for k in range(32, 64)]
    acc = plain.replace(" v", " a")
    moved = ["s_mov_b64 exec, -1", *to, acc, *back]
    return [(plain, False), ("\n".join(moved), False), (f"{row.mnemonic} {d}, {a}, {b}, 0\n{WAIT}", True)]


@pytest.mark.parametrize("target", TARGETS)
def test_products(target: str) -> None:
    """D = A B + C for every shape and type; operands in either file, C a constant, EXEC ignored."""
    rows = [
        row
        for row in rows_of(target, "mfma")
        if "smfmac" not in row.mnemonic and "f8f6f4" not in row.mnemonic
    ]
    cases = [(row, text, zero) for row in rows for text, zero in _sequences(row)]
    problems = [
        problem(shape_of(row.mnemonic), target, k, zero_c=zero) for k, (row, _, zero) in enumerate(cases)
    ]
    outcome = isa_run.run(
        target,
        [text for _, text, _ in cases],
        [p.state for p in problems],
        [(k, k) for k in range(len(cases))],
    )
    wrong = []
    for (row, text, _), p, after in zip(cases, problems, outcome.states, strict=True):
        exact = p.shape.d == "i32"
        error = np.abs(result(p, after) - p.expected)
        limit = 0 if exact else p.magnitude * (2.0**-50 if p.shape.d == "f64" else 2.0**-21)
        if not (error <= limit).all():
            worst = np.unravel_index(np.argmax(error), error.shape)
            wrong.append(
                f"{row.mnemonic} ({len(text.splitlines())} lines): off by {error.max():g} at {worst}"
            )
    assert not wrong, "\n".join(wrong)
    assert not outcome.reports, outcome.reports
    assert len(rows) >= 30


@pytest.mark.parametrize("source", ["s[8:11]", "vcc", "src_vccz", "src_shared_base"])
def test_scalars_are_no_addend(source: str) -> None:
    """Hardware takes vector registers or an inline constant as C; assemblers let some others through."""
    code = {"s[8:11]": 8, "vcc": 106, "src_vccz": 251, "src_shared_base": 235}[source]
    for target in TARGETS:
        (raw,) = assembly.encode(["v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0"], target)
        words = bytearray(raw)
        high = int.from_bytes(words[4:8], "little") & ~(0x1FF << 18) | code << 18
        words[4:8] = high.to_bytes(4, "little")
        error = assembly.decode_error(bytes(words), target)
        assert "C must be vector registers or an inline constant" in error
