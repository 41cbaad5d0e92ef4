"""Merging partial attention states and plain sums: fp32 terms and results, sums of states in fp64.

A state is an output and its log2-sum-exp. One whose log2-sum-exp is -inf saw no key: it counts for nothing,
whatever its output holds, NaN included. Letters: n rows, S index sets, H heads, D head dim, nnz packed rows.
"""

from __future__ import annotations

import torch

from rocade.backends.torch._softmax import NO_KEYS

_CHUNK_ELEMENTS = 1 << 22  # bounds the fp32 copies of one step to 16 MiB each


def merge_pair(
    v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge two states `[n, H, D]`, `[n, H]` of any dtype; the result is fp32."""
    s_a, s_b = s_a.float(), s_b.float()
    top = torch.maximum(s_a, s_b)
    base = top.masked_fill(top == NO_KEYS, 0.0)
    w_a, w_b = torch.exp2(s_a - base), torch.exp2(s_b - base)
    total = w_a + w_b
    v = _weighted(v_a, s_a, w_a).add_(_weighted(v_b, s_b, w_b))
    return v.div_(_divisor(total)), base + total.log2()


def merge_pair_into(
    v_a: torch.Tensor,
    s_a: torch.Tensor,
    v_b: torch.Tensor,
    s_b: torch.Tensor,
    v_out: torch.Tensor,
    s_out: torch.Tensor,
) -> None:
    """`merge_pair` in row chunks; the result may alias either input."""
    for rows in _row_chunks(v_a.shape[0], v_a[:1].numel()):
        v, s = merge_pair(v_a[rows], s_a[rows], v_b[rows], s_b[rows])
        v_out[rows].copy_(v)
        s_out[rows].copy_(s)


def merge_pair_in_place(
    v: torch.Tensor, s: torch.Tensor, v_other: torch.Tensor, s_other: torch.Tensor, mask: torch.Tensor | None
) -> None:
    """Merge the other state into `v`, `s` where `mask [n]` is not 0; other rows keep their bits."""
    for rows in _row_chunks(v.shape[0], v[:1].numel()):
        v_new, s_new = merge_pair(v[rows], s[rows], v_other[rows], s_other[rows])
        if mask is None:
            v[rows].copy_(v_new)
            s[rows].copy_(s_new)
            continue
        take = mask[rows].to(torch.bool)
        v[rows] = torch.where(take[:, None, None], v_new.to(v.dtype), v[rows])
        s[rows] = torch.where(take[:, None], s_new.to(s.dtype), s[rows])


def merge_sets(v: torch.Tensor, s: torch.Tensor, v_out: torch.Tensor, s_out: torch.Tensor) -> None:
    """Merge `v [n, S, H, D]`, `s [n, S, H]` over S; no sets give (0, -inf)."""
    if v.shape[1] == 0:
        v_out.zero_()
        s_out.fill_(NO_KEYS)
        return
    for rows in _row_chunks(v.shape[0], v[:1].numel()):
        s_rows = s[rows].float()
        base = _finite(s_rows.amax(1, keepdim=True))
        weight = torch.exp2(s_rows - base)
        total = weight.sum(1, dtype=torch.float64)
        weighted = _weighted(v[rows], s_rows, weight)
        v_out[rows].copy_(weighted.sum(1, dtype=torch.float64).div_(_divisor(total)))
        s_out[rows].copy_(base.squeeze(1) + total.log2())


def merge_ranges(
    v: torch.Tensor, s: torch.Tensor, indptr: torch.Tensor, v_out: torch.Tensor, s_out: torch.Tensor
) -> None:
    """Row i of the result merges rows `indptr[i]:indptr[i + 1]` of `v [nnz, H, D]`, `s [nnz, H]`."""
    if v_out.shape[0] == 0:
        return
    s = s.float()
    base = _finite(_reduce_ranges(s, indptr, "max"))
    owner = _owner(indptr, s.shape[0])
    weight = torch.exp2(s - base[owner])
    total = _reduce_ranges(weight.double(), indptr, "sum")
    v_out.copy_(_reduce_ranges(_weighted(v, s, weight).double(), indptr, "sum").div_(_divisor(total)))
    s_out.copy_(base + total.log2())


def sum_sets(v: torch.Tensor, v_out: torch.Tensor) -> None:
    """Plain sum of `v [n, S, H, D]` over S."""
    for rows in _row_chunks(v.shape[0], v[:1].numel()):
        v_out[rows].copy_(v[rows].sum(1, dtype=torch.float32))


def sum_ranges(v: torch.Tensor, indptr: torch.Tensor, v_out: torch.Tensor) -> None:
    """Plain sums of rows `indptr[i]:indptr[i + 1]` of `v [nnz, H, D]`."""
    if v_out.shape[0]:
        v_out.copy_(_reduce_ranges(v.float(), indptr, "sum"))


def _weighted(v: torch.Tensor, s: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """fp32 `v * weight`, exactly 0 where the state is empty: 0 * NaN would be NaN."""
    return (v.float() * weight[..., None]).masked_fill_((s == NO_KEYS)[..., None], 0.0)


def _divisor(total: torch.Tensor) -> torch.Tensor:
    return total.masked_fill(total == 0, 1.0)[..., None]


def _finite(top: torch.Tensor) -> torch.Tensor:
    return top.masked_fill(top == NO_KEYS, 0.0)


def _reduce_ranges(x: torch.Tensor, indptr: torch.Tensor, how: str) -> torch.Tensor:
    """Sum (0 for an empty range) or max (-inf) over row ranges; the order is fixed, so the bits are too."""
    offsets = indptr.to(x.device, torch.int64)
    return torch.segment_reduce(x.contiguous(), how, offsets=offsets, axis=0, unsafe=True)


def _owner(indptr: torch.Tensor, rows: int) -> torch.Tensor:
    """int64 `[rows]`: the range a row belongs to; a row outside all gets any: it is not summed."""
    ends = indptr[1:].to(torch.int64)
    found = torch.searchsorted(ends, torch.arange(rows, device=ends.device), right=True)
    return found.clamp_max(ends.numel() - 1)


def _row_chunks(rows: int, elements_per_row: int) -> list[slice]:
    step = max(1, _CHUNK_ELEMENTS // max(elements_per_row, 1))
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]
