"""Start states with values that instructions find interesting, in registers by type."""

from __future__ import annotations

import functools

import numpy as np
from tests.emulator.isa_run import LANES, State

# First register of each kind of value; 64-bit kinds take pairs. The destination is in the same file.
FILE = {"f32": 0, "f64": 4, "f16": 12, "bf16": 16, "b32": 20, "b64": 24}
KIND = {
    **dict.fromkeys(("b32", "b16", "pk_b16", "mask"), "b32"),
    **dict.fromkeys(("f16", "pk_f16"), "f16"),
    **dict.fromkeys(("f64",), "f64"),
    **dict.fromkeys(("f32",), "f32"),
    **dict.fromkeys(("bf16",), "bf16"),
    **dict.fromkeys(("b64",), "b64"),
    "half": "b32",
    "pk_f32": "pk_f32",
}
VECTORS = 32
F32 = (
    *(
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.7,
        -3.7,
        65504.0,
        65536.0,
        2147483520.0,
        2147483648.0,
    ),
    *(
        -2147483648.0,
        4294967296.0,
        1e38,
        -3.4e38,
        1e-38,
        -1e-39,
        1e-45,
        np.inf,
        -np.inf,
        np.nan,
        0.1,
        127.5,
        255.7,
    ),
)
F64 = (*F32, 1e300, -1e-310, 5e-324, 1.7e308, 2147483647.5, 4503599627370497.5)
F16 = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    65504.0,
    6.1e-5,
    6e-8,
    -3e-6,
    np.inf,
    -np.inf,
    np.nan,
    0.1,
    300.0,
)
INTS = (
    0,
    1,
    2,
    31,
    32,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    0x10005,
    0xFF80,
)


def _mixed(rng: np.random.Generator, special: np.ndarray, random: np.ndarray) -> np.ndarray:
    return np.where(rng.random(random.shape) < 0.5, rng.choice(special, random.shape), random)


def _floats(
    rng: np.random.Generator, dtype: type, special: tuple[float, ...], shape: tuple[int, ...]
) -> np.ndarray:
    with np.errstate(all="ignore"):
        spread = rng.standard_normal(shape) * np.exp2(rng.integers(-20, 20, shape))
        return _mixed(rng, np.array(special).astype(dtype), spread.astype(dtype))


def _vectors(rng: np.random.Generator) -> np.ndarray:
    v = np.zeros((VECTORS, LANES), np.uint32)
    v[0:4] = _floats(rng, np.float32, F32, (4, LANES)).view(np.uint32)
    v[3, :4] = (0x7FA00000, 0xFF800001, 0x7F800001, 0x7FC12345)  # two signalling NaNs among others
    v[0, 8:10], v[1, 9:12], v[2, 11:13] = 0x7F800001, 0xFFA00000, 0x7F800001
    doubles = _floats(rng, np.float64, F64, (4, LANES)).view(np.uint64)
    doubles[0, 8:10], doubles[1, 9:12] = 0x7FF0000000000001, 0xFFF4000000000000
    v[4:12:2], v[5:12:2] = doubles & 0xFFFFFFFF, doubles >> 32
    halves = _floats(rng, np.float16, F16, (8, LANES)).view(np.uint16).astype(np.uint32)
    halves[0, 8:10], halves[1, 9:12], halves[6, 11:13] = 0x7C01, 0xFD00, 0x7D00
    v[12:16] = halves[:4] | halves[4:] << 16
    brains = _floats(rng, np.float32, F32, (8, LANES)).view(np.uint32) >> 16
    v[16:20] = brains[:4] | brains[4:] << 16
    v[20:32] = _mixed(rng, np.array(INTS, np.uint32), rng.integers(0, 1 << 32, (12, LANES), dtype=np.uint32))
    return v


@functools.cache
def states() -> tuple[State, ...]:
    """Three start states: all lanes active, some, and all again with other values and SCC set."""
    found = []
    for seed, mask in ((1, (1 << 64) - 1), (2, 0xF0F0_7FFE_8001_A5C3), (3, (1 << 64) - 1)):
        rng = np.random.default_rng(seed)
        s = np.concatenate([_vectors(rng)[:20, 5], rng.choice(np.array(INTS, np.uint32), 12)])
        vcc, scc = int(rng.integers(0, 1 << 63)) * 2 + 1, seed & 1
        found.append(State(_vectors(rng), s.astype(np.uint32), vcc, mask, int(rng.integers(0, 1 << 32)), scc))
    return tuple(found)


def register(kind: str, place: int) -> int:
    """Number of the register that source `place` of a kind reads; place 3 is the destination."""
    name = KIND[kind]
    if (
        name == "pk_f32"
    ):  # two f32 in a pair: there are two aligned pairs, and the destination is one of integers
        return 30 if place == 3 else place % 2 * 2
    return FILE[name] + place * (2 if name in ("f64", "b64") else 1)
