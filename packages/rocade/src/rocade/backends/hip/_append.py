"""Appending to a paged cache: bytes are copied, so any type of element will do.

Letters: nnz new tokens, N pages, S page size, H heads, D head dims.
"""

from __future__ import annotations

import functools

import torch

from rocade.backends.hip._gpu import Kernel, gpu_of
from rocade.backends.hip._states import freed
from rocade_kernels import hip_abi, hip_launch
from rocade_kernels.runtime import Layout


def _tokens(name: str) -> tuple[str, ...]:
    return (
        name,
        f"{name}_row",
        f"{name}_head",
        f"{name}_cache",
        f"{name}_cache_page",
        f"{name}_cache_slot",
        f"{name}_cache_head",
    )


def _units(name: str) -> tuple[str, ...]:
    return (f"{name}_columns", f"{name}_columns_magic", f"{name}_units", f"{name}_units_magic")


APPEND = Kernel(
    "append_paged_kv_cache",
    Layout(
        hip_abi.AppendPagedKvCacheArgs,
        (
            *_tokens("key"),
            *_tokens("value"),
            *("batch_indices", "positions", "indices", "indptr", "num_indices", "rows"),
            *("batch", "pool", "page_size"),
            *_units("key"),
            *_units("value"),
            *("rows_a_block", "unit", "reserved"),
        ),
    ),
)


@functools.lru_cache(maxsize=4096)
def _shape(
    rows: int, heads: int, key_bytes: int, value_bytes: int, page_size: int, unit: int, units: int
) -> tuple[hip_launch.Grid, tuple[int, ...]]:
    """The grid, and the arguments from `page_size` to `rows_a_block`; bytes are those of one head."""
    columns = heads * max(key_bytes, value_bytes) // unit
    found = hip_launch.append_paged_kv_cache(rows, columns, units=units)
    key = hip_launch.unit_divisors(heads, key_bytes, unit, found.rows_a_block)
    value = hip_launch.unit_divisors(heads, value_bytes, unit, found.rows_a_block)
    return found.grid, (page_size, *key, *value, found.rows_a_block)


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
    """Write `key, value [nnz, H, D]` into NHD cache views `[N, S, H, D]` of the same dtype.

    A token whose batch index names no request, or whose page is not in its request's table or not in the
    pool, is skipped.
    """
    pool, page_size, heads, key_dim = k_cache.shape
    batch, entries = kv_indptr.numel() - 1, kv_indices.numel()
    if not (key.numel() or value.numel()) or not pool or not entries or batch < 1:
        return
    tensors = (key, value, batch_indices, positions, kv_indices, kv_indptr)
    if error := freed(*tensors, k_cache, v_cache):
        raise error
    size = key.itemsize
    keys = _places(key, k_cache)
    values = _places(value, v_cache)
    key_bytes, value_bytes = key_dim * size, v_cache.shape[3] * size
    unit = hip_launch.alignment(*keys, *values, key_bytes, value_bytes)
    gpu = gpu_of(key)
    grid, shape = _shape(key.shape[0], heads, key_bytes, value_bytes, page_size, unit, gpu.units)
    launcher = gpu.kernel(APPEND)
    args = launcher.arguments()
    args.fill(
        *keys,
        *values,
        *(array.data_ptr() for array in tensors[2:]),
        *(entries, key.shape[0], batch, pool),
        *shape,
        unit,
        0,
    )
    launcher.launch(grid, hip_launch.THREADS, args, tensors, (k_cache, v_cache))


def _places(new: torch.Tensor, cache: torch.Tensor) -> tuple[int, ...]:
    """The arguments of `_tokens`: addresses, and strides in bytes."""
    size = new.itemsize
    row, head, _ = new.stride()
    page, slot, cache_head, _ = cache.stride()
    return (
        *(new.data_ptr(), row * size, head * size),
        *(cache.data_ptr(), page * size, slot * size, cache_head * size),
    )
