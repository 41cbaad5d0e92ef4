"""Inputs and float64 results for the kernels of triton_kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.emulator.aiter import Array, from_bf16, to_bf16

# Result of a kernel against float64: absolute, by output type. Twice the rounding of values up to 4.
TOLERANCE = {"fp16": 4e-3, "bf16": 3e-2, "fp32": 2e-5, "i32": 0}


@dataclass(frozen=True)
class Case:
    """One launch: how to compile it, its arguments, and what outputs must be, by argument position."""

    kernel: str
    types: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    grid: tuple[int, ...]
    args: list[Any]
    expect: dict[int, Any]
    dtype: str
    warps: int = 4

    def errors(self) -> dict[int, float]:
        """Largest deviation of each output."""
        found = {}
        for position, wanted in self.expect.items():
            got = value(self.args[position], self.types[position].lstrip("*"))
            found[position] = float(np.abs(got - wanted).max())
        return found


def tensor(x: Array, dtype: str) -> Array:
    """float64 values as an array of a Triton type; bf16 as bit patterns."""
    if dtype == "bf16":
        return to_bf16(x)
    return np.ascontiguousarray(x, {"fp16": np.float16, "fp32": np.float32, "i32": np.int32}[dtype])


def value(x: Array, dtype: str) -> Array:
    """An array of a Triton type as float64."""
    return from_bf16(x) if dtype == "bf16" else x.astype(np.float64)


def _random(rng: np.random.Generator, dtype: str, *shape: int) -> tuple[Array, Array]:
    held = tensor(rng.standard_normal(shape, dtype=np.float32), dtype)
    return held, value(held, dtype)


def _empty(dtype: str, *shape: int) -> Array:
    return tensor(np.zeros(shape), dtype)


def silu_mul(dtype: str, rng: np.random.Generator) -> Case:
    rows, n = 3, 200
    x, exact = _random(rng, dtype, rows, 2 * n)
    gate, up = exact[:, :n], exact[:, n:]
    args = [x, _empty(dtype, rows, n), n]
    constants = (("row_stride", 2 * n), ("block", 128))
    expect = {1: gate / (1 + np.exp(-gate)) * up}
    return Case("silu_mul", (f"*{dtype}", f"*{dtype}", "i32"), constants, (rows,), args, expect, dtype)


def _softmax(x: Array) -> Array:
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def softmax(dtype: str, rng: np.random.Generator) -> Case:
    rows, cols = 4, 777
    x, exact = _random(rng, dtype, rows, cols)
    args = [x, _empty(dtype, rows, cols), cols, cols]
    types = (f"*{dtype}", f"*{dtype}", "i32", "i32")
    return Case("softmax", types, (("block", 1024),), (rows,), args, {1: _softmax(exact)}, dtype)


def rms_norm(dtype: str, rng: np.random.Generator) -> Case:
    rows, cols = 3, 500
    x, exact = _random(rng, dtype, rows, cols)
    w, weight = _random(rng, dtype, cols)
    wanted = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-5) * weight
    types = (f"*{dtype}",) * 3 + ("i32", "fp32")
    args = [x, w, _empty(dtype, rows, cols), cols, 1e-5]
    return Case("rms_norm", types, (("block", 512),), (rows,), args, {2: wanted}, dtype)


def cumsum_argmax(dtype: str, rng: np.random.Generator) -> Case:
    rows, cols = 2, 300
    x = rng.permutation(rows * cols).reshape(rows, cols).astype(np.int32)
    args = [x, _empty("i32", rows, cols), _empty("i32", rows), cols]
    expect = {1: x.cumsum(-1), 2: x.argmax(-1)}
    return Case("cumsum_argmax", ("*i32",) * 3 + ("i32",), (("block", 512),), (rows,), args, expect, "i32")


def histogram(dtype: str, rng: np.random.Generator) -> Case:
    n = 900
    x = rng.integers(0, 256, n).astype(np.int32)
    args = [x, _empty("i32", 256), n]
    expect = {1: np.bincount(x, minlength=256)}
    return Case("histogram", ("*i32", "*i32", "i32"), (("block", 256),), (4,), args, expect, "i32")


def matmul(dtype: str, rng: np.random.Generator) -> Case:
    m, n, k = 100, 72, 90
    a, exact_a = _random(rng, dtype, m, k)
    b, exact_b = _random(rng, dtype, k, n)
    scaled, exact_a = tensor(exact_a / 8, dtype), exact_a / 8
    del a
    args = [scaled, b, _empty("fp32", m, n), m, n, k]
    types = (f"*{dtype}", f"*{dtype}", "*fp32") + ("i32",) * 3
    constants = (("tile_m", 64), ("tile_n", 64), ("tile_k", 32))
    return Case("matmul", types, constants, (2, 2), args, {2: exact_a @ exact_b}, "fp32")


def attention(dtype: str, rng: np.random.Generator, causal: bool = False, dim: int = 64) -> Case:
    heads, group, seq_q, seq_k = 2, 2, 100, 150
    q, exact_q = _random(rng, dtype, heads, seq_q, dim)
    k, exact_k = _random(rng, dtype, heads // group, seq_k, dim)
    v, exact_v = _random(rng, dtype, heads // group, seq_k, dim)
    logits = exact_q @ np.repeat(exact_k, group, 0).transpose(0, 2, 1) * dim**-0.5
    if causal:
        visible = np.arange(seq_k)[None] <= np.arange(seq_q)[:, None] + seq_k - seq_q
        logits = np.where(visible, logits, -np.inf)
    wanted = _softmax(logits) @ np.repeat(exact_v, group, 0)
    args = [q, k, v, _empty(dtype, heads, seq_q, dim), seq_q, seq_k, group, dim**-0.5]
    types = (f"*{dtype}",) * 4 + ("i32",) * 3 + ("fp32",)
    constants = (("causal", causal), ("dim", dim), ("tile_m", 64), ("tile_n", 32))
    return Case("attention", types, constants, (2, heads), args, {3: wanted}, dtype)


def attention_causal(dtype: str, rng: np.random.Generator) -> Case:
    return attention(dtype, rng, causal=True, dim=128)


def decode(dtype: str, rng: np.random.Generator) -> Case:
    requests, heads, page, dim, max_pages = 3, 2, 16, 64, 8
    lengths = np.array([100, 17, 64], np.int32)
    pages = rng.permutation(requests * max_pages).reshape(requests, max_pages).astype(np.int32)
    q, exact_q = _random(rng, dtype, requests, heads, dim)
    k, exact_k = _random(rng, dtype, requests * max_pages, page, dim)
    v, exact_v = _random(rng, dtype, requests * max_pages, page, dim)
    wanted = np.empty((requests, heads, dim))
    for r, length in enumerate(lengths):
        keys, values = (x[pages[r]].reshape(-1, dim)[:length] for x in (exact_k, exact_v))
        wanted[r] = _softmax(exact_q[r] @ keys.T * dim**-0.5) @ values
    args = [q, k, v, pages, lengths, _empty(dtype, requests, heads, dim), dim**-0.5, heads, max_pages]
    types = (f"*{dtype}",) * 3 + ("*i32", "*i32", f"*{dtype}", "fp32", "i32", "i32")
    constants = (("page_size", page), ("dim", dim), ("tile_n", 32))
    return Case("decode", types, constants, (requests, heads), args, {5: wanted}, dtype)


CASES: dict[str, Callable[[str, np.random.Generator], Case]] = {
    make.__name__: make
    for make in (
        silu_mul,
        softmax,
        rms_norm,
        cumsum_argmax,
        histogram,
        matmul,
        attention,
        attention_causal,
        decode,
    )
}


def case(name: str, dtype: str, seed: int = 0) -> Case:
    """A case by its name; `dtype` is "fp16" or "bf16"."""
    return CASES[name](dtype, np.random.default_rng(seed))
