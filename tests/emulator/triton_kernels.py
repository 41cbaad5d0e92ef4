"""Kernels in Triton, compiled for an AMD GPU that need not be there. Their data is in triton_cases."""

# ruff: noqa: ANN001, ANN201  Triton's parameters have no Python types

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from tests import needs

import rocade_emulator as emu

triton = needs.module("triton", "triton, which compiles test kernels without a GPU, is not installed")
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel and how to launch it."""

    program: emu.Program
    name: str
    dynamic_lds: int
    block: int

    def launch(self, grid: int | tuple[int, ...], args: list[Any], **options: Any) -> emu.Result:
        """Run it. Triton appends two pointers to scratch memory, which these kernels do not use."""
        options.setdefault("dynamic_lds", self.dynamic_lds)
        return emu.launch(self.program, self.name, grid, self.block, [*args, None, None], **options)


@functools.cache
def compiled(
    name: str,
    target: str,
    types: tuple[str, ...],
    constants: tuple[tuple[str, Any], ...] = (),
    warps: int = 4,
    stages: int = 2,
) -> Compiled:
    """A kernel of this module for a target.

    Args:
        name: Its function.
        target: "gfx942" or "gfx950".
        types: Of its run-time parameters in order, as Triton writes them: "*fp16", "i32", "fp32".
        constants: Its compile-time parameters.
        warps: Waves of a workgroup.
        stages: Of software pipelining.
    """
    function = globals()[name]
    names = [n for n in function.arg_names if n not in dict(constants)]
    signature = dict(zip(names, types, strict=True)) | {n: "constexpr" for n, _ in constants}
    # Pointers to tensors are aligned to 16 bytes, as Triton's own launcher finds out at run time.
    attrs = {
        (function.arg_names.index(n),): [["tt.divisibility", 16]] for n in names if signature[n][0] == "*"
    }
    source = ASTSource(function, signature, dict(constants), attrs)
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
    made = triton.compile(source, target=GPUTarget("hip", target, 64), options=options)
    program = emu.Program.from_bytes(made.asm["hsaco"], target, name=f"{name}-{target}")
    return Compiled(program, made.metadata.name, made.metadata.shared, warps * 64)


@triton.jit
def silu_mul(x, out, n, row_stride: tl.constexpr, block: tl.constexpr):
    """out[r, c] = silu(x[r, c]) * x[r, n + c]."""
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, n, block):
        cols = start + tl.arange(0, block)
        gate = tl.load(x + row * row_stride + cols, mask=cols < n, other=0.0).to(tl.float32)
        up = tl.load(x + row * row_stride + n + cols, mask=cols < n, other=0.0).to(tl.float32)
        result = gate / (1 + tl.exp(-gate)) * up
        tl.store(out + row * n + cols, result.to(out.dtype.element_ty), mask=cols < n)


@triton.jit
def softmax(x, out, cols, stride, block: tl.constexpr):
    """Softmax over rows that fit into one block."""
    row = tl.program_id(0)
    at = tl.arange(0, block)
    values = tl.load(x + row * stride + at, mask=at < cols, other=-float("inf")).to(tl.float32)
    exps = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * stride + at, (exps / tl.sum(exps, 0)).to(out.dtype.element_ty), mask=at < cols)


@triton.jit
def rms_norm(x, weight, out, cols, eps, block: tl.constexpr):
    """Rows scaled to unit root mean square, times a weight."""
    row = tl.program_id(0)
    at = tl.arange(0, block)
    values = tl.load(x + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / cols + eps)
    w = tl.load(weight + at, mask=at < cols, other=0.0).to(tl.float32)
    tl.store(out + row * cols + at, (values * scale * w).to(out.dtype.element_ty), mask=at < cols)


@triton.jit
def cumsum_argmax(x, sums, best, cols, block: tl.constexpr):
    """Running sums of a row and the place of its largest value: scans and reductions over lanes and waves."""
    row = tl.program_id(0)
    at = tl.arange(0, block)
    values = tl.load(x + row * cols + at, mask=at < cols, other=0)
    tl.store(sums + row * cols + at, tl.cumsum(values, 0), mask=at < cols)
    tl.store(best + row, tl.argmax(tl.where(at < cols, values, -2147483647), 0))


@triton.jit
def histogram(x, counts, n, block: tl.constexpr):
    """Counts of bytes by atomic additions."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    values = tl.load(x + at, mask=at < n, other=0).to(tl.int32) & 255
    tl.atomic_add(counts + values, 1, mask=at < n)


@triton.jit
def matmul(a, b, c, m, n, k, tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr):
    """c[m, n] = a[m, k] @ b[k, n] with ragged edges."""
    rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    cols = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    acc = tl.zeros((tile_m, tile_n), tl.float32)
    for start in range(0, k, tile_k):
        inner = start + tl.arange(0, tile_k)
        ta = tl.load(
            a + rows[:, None] * k + inner[None], mask=(rows[:, None] < m) & (inner[None] < k), other=0.0
        )
        tb = tl.load(
            b + inner[:, None] * n + cols[None], mask=(inner[:, None] < k) & (cols[None] < n), other=0.0
        )
        acc = tl.dot(ta, tb, acc)
    where = c + rows[:, None] * n + cols[None]
    tl.store(where, acc.to(c.dtype.element_ty), mask=(rows[:, None] < m) & (cols[None] < n))


@triton.jit
def scaled_matmul(
    a, b, scale_a, scale_b, c, k, kind_a: tl.constexpr, kind_b: tl.constexpr, tile: tl.constexpr
):
    """C = a[tile, k] @ b[tile, k]^T, with a scale 2^(s - 127) for each 32 of k; e2m1 is packed by two."""
    rows = tl.arange(0, tile)
    packed_a: tl.constexpr = 2 if kind_a == "e2m1" else 1
    packed_b: tl.constexpr = 2 if kind_b == "e2m1" else 1
    acc = tl.zeros((tile, tile), tl.float32)
    for start in range(0, k, 128):
        inner_a = start // packed_a + tl.arange(0, 128 // packed_a)
        inner_b = start // packed_b + tl.arange(0, 128 // packed_b)
        groups = start // 32 + tl.arange(0, 4)
        ta = tl.load(a + rows[:, None] * (k // packed_a) + inner_a[None])
        tb = tl.load(b + rows[None] * (k // packed_b) + inner_b[:, None])
        sa = tl.load(scale_a + rows[:, None] * (k // 32) + groups[None])
        sb = tl.load(scale_b + rows[:, None] * (k // 32) + groups[None])
        acc = tl.dot_scaled(ta, sa, kind_a, tb, sb, kind_b, acc)
    tl.store(c + rows[:, None] * tile + rows[None], acc)


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    seq_q,
    seq_k,
    group,
    scale,
    causal: tl.constexpr,
    dim: tl.constexpr,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
):
    """Flash attention over [head, seq, dim]; `group` heads share keys and values; causal is bottom right."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    dims = tl.arange(0, dim)
    tq = tl.load(q + (head * seq_q + rows[:, None]) * dim + dims[None], mask=rows[:, None] < seq_q, other=0.0)
    base = (head // group) * seq_k * dim
    top = tl.full((tile_m,), -float("inf"), tl.float32)
    total = tl.zeros((tile_m,), tl.float32)
    acc = tl.zeros((tile_m, dim), tl.float32)
    for start in range(0, seq_k, tile_n):
        keys = start + tl.arange(0, tile_n)
        tk = tl.load(k + base + keys[None] * dim + dims[:, None], mask=keys[None] < seq_k, other=0.0)
        tv = tl.load(v + base + keys[:, None] * dim + dims[None], mask=keys[:, None] < seq_k, other=0.0)
        logits = tl.dot(tq, tk) * (scale * 1.44269504)
        visible = keys[None] < seq_k
        if causal:
            visible = visible & (keys[None] <= rows[:, None] + seq_k - seq_q)
        logits = tl.where(visible, logits, -1.0e30)
        new_top = tl.maximum(top, tl.max(logits, 1))
        weights = tl.exp2(logits - new_top[:, None])
        keep = tl.exp2(top - new_top)
        total = total * keep + tl.sum(weights, 1)
        acc = acc * keep[:, None] + tl.dot(weights.to(tv.dtype), tv)
        top = new_top
    where = out + (head * seq_q + rows[:, None]) * dim + dims[None]
    tl.store(where, (acc / total[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < seq_q)


@triton.jit
def decode(
    q,
    k,
    v,
    pages,
    lengths,
    out,
    scale,
    heads,
    max_pages,
    page_size: tl.constexpr,
    dim: tl.constexpr,
    tile_n: tl.constexpr,
):
    """One query a request over paged keys and values [page, page_size, dim]: gathers through a table."""
    request = tl.program_id(0)
    head = tl.program_id(1)
    dims = tl.arange(0, dim)
    length = tl.load(lengths + request)
    tq = tl.load(q + (request * heads + head) * dim + dims).to(tl.float32)
    top, total = -float("inf"), 0.0
    acc = tl.zeros((dim,), tl.float32)
    for start in range(0, length, tile_n):
        at = start + tl.arange(0, tile_n)
        page = tl.load(pages + request * max_pages + at // page_size, mask=at < length, other=0).to(tl.int64)
        rows = ((page * page_size + at % page_size) * dim)[:, None] + dims[None]
        tk = tl.load(k + rows, mask=at[:, None] < length, other=0.0).to(tl.float32)
        logits = tl.where(at < length, tl.sum(tk * tq[None], 1) * scale, -1.0e30)
        new_top = tl.maximum(top, tl.max(logits, 0))
        weights = tl.exp(logits - new_top)
        keep = tl.exp(top - new_top)
        tv = tl.load(v + rows, mask=at[:, None] < length, other=0.0).to(tl.float32)
        total = total * keep + tl.sum(weights, 0)
        acc = acc * keep + tl.sum(weights[:, None] * tv, 0)
        top = new_top
    tl.store(out + (request * heads + head) * dim + dims, (acc / total).to(out.dtype.element_ty))
