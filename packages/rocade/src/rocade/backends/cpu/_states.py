"""Merges and sums of attention states, and cache appends, in the native library. fp32 to the end.

Letters: n rows, S states a row, H heads, D head dim.
"""

from __future__ import annotations

import torch

from rocade.backends.cpu._plan import NATIVE_TORCH, address
from rocade_kernels import _abi, _native
from rocade_kernels.cpu_plans import check, chosen_isa


def _rows(x: torch.Tensor) -> torch.Tensor:
    """`x` itself when its last dimension is contiguous, a copy otherwise."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _two(x: torch.Tensor) -> tuple[int, int]:
    return x.stride(0), x.stride(1)


def _state(v: torch.Tensor, s: torch.Tensor) -> tuple[int, ...]:
    return address(v), NATIVE_TORCH[v.dtype], *_two(v), address(s), *_two(s)


def merge_lists(
    v: torch.Tensor,
    s: torch.Tensor | None,
    v_out: torch.Tensor,
    s_out: torch.Tensor | None,
    *,
    indptr: torch.Tensor | None,
    fixed: int = 0,
) -> None:
    """Row i of the result merges rows `indptr[i]:indptr[i + 1]`, or `fixed` rows each, of `v [rows, H, D]`.

    Without `s` the rows are added up.
    """
    if not v.numel():  # no states: a null address would read as "without s"
        v_out.zero_()
        if s_out is not None:
            s_out.fill_(float("-inf"))
        return
    v = _rows(v)
    packed = _abi.MERGE.pack(
        address(v),
        NATIVE_TORCH[v.dtype],
        *_two(v),
        v.shape[0],
        *((0, 0, 0) if s is None else (address(s), *_two(s))),
        0 if indptr is None else address(indptr),
        fixed,
        address(v_out),
        NATIVE_TORCH[v_out.dtype],
        *_two(v_out),
        *((0, 0, 0) if s_out is None else (address(s_out), *_two(s_out))),
        *v_out.shape,
        torch.get_num_threads(),
        chosen_isa(),
    )
    check(_native.library().rk_merge(packed), "merge")


def merge_pairs(
    v_a: torch.Tensor,
    s_a: torch.Tensor,
    v_b: torch.Tensor,
    s_b: torch.Tensor,
    v_out: torch.Tensor,
    s_out: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> None:
    """Merge two states `[n, H, D]`, `[n, H]`; rows whose `mask` is 0 are not written."""
    v_a, v_b = _rows(v_a), _rows(v_b)
    chosen = None if mask is None else (mask != 0).to(torch.uint8).contiguous()
    packed = _abi.MERGE_PAIR.pack(
        *_state(v_a, s_a),
        *_state(v_b, s_b),
        *_state(v_out, s_out),
        0 if chosen is None else address(chosen),
        *v_out.shape,
        torch.get_num_threads(),
        chosen_isa(),
    )
    check(_native.library().rk_merge_pair(packed), "merge")


def append(
    key: torch.Tensor,
    value: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
) -> None:
    """Write `key, value [nnz, H, D]` into NHD cache views `[N, S, H, D]` of the same dtype."""
    key, value = _rows(key), _rows(value)
    index = [x.contiguous() for x in (batch_indices, positions, kv_indices, kv_indptr)]
    packed = _abi.APPEND.pack(
        address(key),
        address(value),
        *_two(key),
        *_two(value),
        address(index[0]),
        address(index[1]),
        key.shape[0],
        address(k_cache),
        address(v_cache),
        *k_cache.stride()[:3],
        *v_cache.stride()[:3],
        min(k_cache.shape[0], v_cache.shape[0]),
        k_cache.shape[1],
        address(index[2]),
        address(index[3]),
        index[2].numel(),
        index[3].numel() - 1,
        key.shape[1],
        key.shape[2],
        value.shape[2],
        key.element_size(),
        torch.get_num_threads(),
    )
    check(_native.library().rk_append(packed), "append")
