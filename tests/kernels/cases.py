"""Attention problems in numpy for the native kernels, and a plain fp64 answer to each. Independent of rocade.

Letters: T query rows, Hq and Hkv heads, D head dim, B requests, S page size.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field

import numpy as np

from rocade_kernels import _abi
from rocade_kernels.cpu_plans import LevelArrays, NativePlan, PlanArgs

DTYPES = {"fp32": _abi.FP32, "fp16": _abi.FP16, "bf16": _abi.BF16}


def to_storage(x: np.ndarray, dtype: str) -> np.ndarray:
    """fp32 to the storage type; bf16 is held as uint16."""
    if dtype == "fp32":
        return x.astype(np.float32)
    if dtype == "fp16":
        return x.astype(np.float16)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_storage(x: np.ndarray, dtype: str) -> np.ndarray:
    """Storage to fp64."""
    if dtype == "bf16":
        return (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return x.astype(np.float64)


@dataclass
class Level:
    """One level's plan arrays; `pages` holds page ids, or is None for dense K and V."""

    qo_indptr: np.ndarray
    kv_indptr: np.ndarray
    kv_len: np.ndarray
    page_size: int
    pages: np.ndarray | None
    k: np.ndarray  # storage: [N, S, Hkv, D] or [n, Hkv, D], any strides but the last
    v: np.ndarray

    def keys(self, request: int) -> tuple[np.ndarray, np.ndarray]:
        """K and V rows of a request, `[kv_len, Hkv, D]`, in storage."""
        first, n = int(self.kv_indptr[request]), int(self.kv_len[request])
        if self.pages is None:
            return self.k[first : first + n], self.v[first : first + n]
        ids = self.pages[first : first + -(-n // self.page_size)] if n else self.pages[:0]
        return (
            self.k[ids].reshape(-1, *self.k.shape[2:])[:n],
            self.v[ids].reshape(-1, *self.v.shape[2:])[:n],
        )


@dataclass
class Case:
    """One problem; masks are bool `[qo_len, kv_len]` a request, only with one level."""

    levels: list[Level]
    q: np.ndarray
    dtype: str
    kv_heads: int
    causal: bool = False
    window: int = -1
    cap: float = 0.0
    alibi: bool = False
    masks: list[np.ndarray] | None = None
    sm_scale: float = 0.3
    v_scale: float = 1.0
    partial: tuple[np.ndarray, np.ndarray] | None = None  # fp32 out, lse
    plan_options: dict[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """T."""
        return self.q.shape[0]


def packed_masks(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Bits, little-endian, each request from its own byte; and the first byte of each request."""
    assert case.masks is not None
    blocks = [np.packbits(mask.reshape(-1), bitorder="little") for mask in case.masks]
    indptr = np.concatenate([[0], np.cumsum([b.size for b in blocks])]).astype(np.int64)
    return np.concatenate([*blocks, np.zeros(0, np.uint8)]), indptr


def make_plan(case: Case) -> NativePlan:
    """Plan a case with its options (threads, isa, share, ...)."""
    levels = [
        LevelArrays(
            x.qo_indptr.ctypes.data, x.kv_indptr.ctypes.data, x.kv_len.ctypes.data, len(x.kv_len), x.page_size
        )
        for x in case.levels
    ]
    mask, indptr = _abi.MASK_CAUSAL if case.causal else _abi.MASK_NONE, None
    if case.masks is not None:
        mask, indptr = _abi.MASK_CUSTOM, packed_masks(case)[1]
    level = case.levels[0]
    return NativePlan(
        levels,
        PlanArgs(
            num_rows=case.rows,
            num_qo_heads=case.q.shape[1],
            num_kv_heads=case.kv_heads,
            head_dim_qk=level.k.shape[-1],
            head_dim_vo=level.v.shape[-1],
            kv_dtype=DTYPES[case.dtype],
            mask=mask,
            mask_indptr=0 if indptr is None else indptr.ctypes.data,
            window_left=case.window,
            alibi=int(case.alibi),
            **case.plan_options,
        ),
    )


def strides(x: np.ndarray, count: int) -> list[int]:
    """The first `count` strides in elements."""
    return [s // x.itemsize for s in x.strides[:count]]


def level_tensors(level: Level) -> bytes:
    """`rk_level_tensors` of a level."""
    k, v, pages = level.k, level.v, level.pages
    dense = pages is None
    spans = [0, *strides(k, 2), 0, *strides(v, 2)] if dense else [*strides(k, 3), *strides(v, 3)]
    ids = (0, 0) if pages is None else (pages.ctypes.data, pages.size)
    return _abi.LEVEL_TENSORS.pack(k.ctypes.data, v.ctypes.data, *spans, k.shape[0], *ids)


def run(case: Case, plan: NativePlan | None = None, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Out (fp64) and LSE. Outputs start as NaN, so an unwritten element shows."""
    plan = plan or make_plan(case)
    levels = b"".join(level_tensors(level) for level in case.levels)
    buffer = ctypes.create_string_buffer(levels, len(levels))
    out = to_storage(np.full((case.rows, case.q.shape[1], case.levels[0].v.shape[-1]), np.nan), case.dtype)
    lse = np.full(case.q.shape[:2], np.nan, np.float32)
    workspace = np.full(plan.workspace_bytes // 4 + 1, np.nan, np.float32)
    bits = packed_masks(case)[0] if case.masks is not None else np.zeros(0, np.uint8)
    partial = [0] * 7
    if case.partial is not None:
        state, other = case.partial
        partial = [state.ctypes.data, _abi.FP32, *strides(state, 2), other.ctypes.data, *strides(other, 2)]
    plan.run(
        _abi.RUN.pack(
            ctypes.addressof(buffer), len(case.levels), case.rows,
            case.q.ctypes.data, DTYPES[case.dtype], *strides(case.q, 2),
            out.ctypes.data, DTYPES[case.dtype], *strides(out, 2),
            lse.ctypes.data, *strides(lse, 2),
            *partial, bits.ctypes.data, bits.size,
            case.sm_scale, case.v_scale, case.cap,
            workspace.ctypes.data, plan.workspace_bytes, threads,
        )
    )  # fmt: skip
    return from_storage(out, case.dtype), lse


def slopes(heads: int) -> np.ndarray:
    """ALiBi slopes: 2^(-8 (h + 1) / n) for the largest power of two n, odd steps of a finer series beyond."""
    n = 2 ** int(math.log2(heads))
    return np.array(
        [2.0 ** (-8 * (h + 1) / n) if h < n else 2.0 ** (-4 * (2 * (h - n) + 1) / n) for h in range(heads)]
    )


def request_of(level: Level, row: int) -> int:
    """Which request of a level has a row."""
    return int(np.searchsorted(level.qo_indptr, row, side="right")) - 1


def visible(case: Case, row: int, total: int) -> np.ndarray:
    """Which of a row's keys it sees, by global position."""
    leaf = case.levels[-1]
    request = request_of(leaf, row)
    first, end = int(leaf.qo_indptr[request]), int(leaf.qo_indptr[request + 1])
    position, key = row - first + total - (end - first), np.arange(total)
    seen = np.ones(total, bool)
    if case.causal and case.masks is None:
        seen &= key <= position
    if case.window >= 0:
        seen &= key >= position - case.window
    if case.masks is not None:
        seen &= case.masks[request][row - first]
    return seen


def row_keys(case: Case, row: int) -> tuple[np.ndarray, np.ndarray]:
    """All K and V of a row, its levels one after the other, fp64."""
    parts = [level.keys(request_of(level, row)) for level in case.levels]
    return (
        np.concatenate([from_storage(k, case.dtype) for k, _ in parts]),
        np.concatenate([from_storage(v, case.dtype) for _, v in parts]),
    )


def expected(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The answer in fp64: out `[T, Hq, D]`, LSE `[T, Hq]` in base 2."""
    heads, group = case.q.shape[1], case.q.shape[1] // case.kv_heads
    out = np.zeros((case.rows, heads, case.levels[0].v.shape[-1]))
    lse = np.full((case.rows, heads), -np.inf)
    for row in range(case.rows):
        k, v = row_keys(case, row)
        leaf = case.levels[-1]
        request = request_of(leaf, row)
        position = row - int(leaf.qo_indptr[request + 1]) + len(k)
        seen = visible(case, row, len(k))
        for head in range(heads):
            s = case.sm_scale * (k[seen, head // group] @ from_storage(case.q[row, head], case.dtype))
            if case.alibi:
                s = s + slopes(heads)[head] * (np.flatnonzero(seen) - position)
            if case.cap:
                s = case.cap * np.tanh(s / case.cap)
            out[row, head], lse[row, head] = softmax_sum(s, v[seen, head // group])
    out *= case.v_scale
    return (out, lse) if case.partial is None else merge(out, lse, *case.partial)


def softmax_sum(s: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, float]:
    """Weighted sum and log2-sum-exp of one row's logits; (0, -inf) without keys."""
    if not s.size:
        return np.zeros(v.shape[-1]), -np.inf
    top = s.max()
    p = np.exp(s - top)
    return p @ v / p.sum(), (top + math.log(p.sum())) / math.log(2)


def merge(
    out: np.ndarray, lse: np.ndarray, other: np.ndarray, other_lse: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Two states into one, fp64; -inf is the identity."""
    both = np.logaddexp2(lse, other_lse.astype(np.float64))
    safe = np.where(np.isneginf(both), 0, both)
    with np.errstate(invalid="ignore"):
        a, b = np.exp2(lse - safe)[..., None], np.exp2(other_lse - safe)[..., None]
    return np.where(a > 0, out * a, 0) + np.where(b > 0, other * b, 0), both


# ---- making cases


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Normal values in storage."""
    return to_storage(rng.standard_normal(shape), dtype)


def indptr(lengths: list[int], first: int = 0) -> np.ndarray:
    """int32 prefix sums."""
    return (first + np.concatenate([[0], np.cumsum(lengths)])).astype(np.int32)


def paged_level(
    rng: np.random.Generator,
    qo: list[int],
    kv: list[int],
    heads: int,
    dims: tuple[int, int],
    page: int,
    dtype: str,
) -> Level:
    """Shuffled pages, unused ones among them, NaN in every slot that no request uses, indptr from above 0."""
    pages = [-(-n // page) for n in kv]
    skipped, spare = 2, 3
    pool = sum(pages) + spare
    ids = np.concatenate([rng.permutation(pool), [0] * 5])[: skipped + sum(pages) + 1].astype(np.int32)
    ids[:skipped] = 0
    ids[skipped : skipped + sum(pages)] = rng.permutation(pool)[: sum(pages)]
    k, v = (to_storage(np.full((pool, page, heads, d), np.nan), dtype) for d in dims)
    level = Level(indptr(qo), indptr(pages, skipped), np.array(kv, np.int32), page, ids, k, v)
    for request, n in enumerate(kv):
        for j in range(n):
            at = ids[level.kv_indptr[request] + j // page], j % page
            k[at] = values(rng, (heads, dims[0]), dtype)
            v[at] = values(rng, (heads, dims[1]), dtype)
    return level


def dense_level(
    rng: np.random.Generator, qo: list[int], kv: list[int], heads: int, dims: tuple[int, int], dtype: str
) -> Level:
    """Ragged rows, one request after the other."""
    k, v = (values(rng, (sum(kv), heads, d), dtype) for d in dims)
    return Level(indptr(qo), indptr(kv), np.array(kv, np.int32), 0, None, k, v)
