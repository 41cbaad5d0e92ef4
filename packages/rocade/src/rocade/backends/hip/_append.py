"""Appending to a paged cache: bytes are copied, so any type of element will do.

Letters: nnz new tokens, N pages, S page size, H heads, D head dims.
"""

from __future__ import annotations

import functools

import torch

from rocade.backends._gpu import Kernel, gpu_of
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
            *("batch_indices", "positions", "indices", "indptr", "num_indices", "page_magic", "rows"),
            *("batch", "pool", "page_size"),
            *_units("key"),
            *_units("value"),
            *("rows_a_block", "unit", "reserved"),
        ),
    ),
    "strided",
)
APPEND_DENSE = Kernel(
    "append_paged_kv_cache",
    Layout(
        hip_abi.AppendPagedKvCacheDenseArgs,
        (
            *("key", "value", "batch_indices", "positions", "indptr", "indices"),
            *("key_cache", "value_cache", "page_units", "num_indices", "page_magic"),
            *hip_launch.DenseAppend._fields,
            *("batch", "pool", "page_size"),
        ),
    ),
)


@functools.lru_cache(maxsize=4096)
def _shape(
    rows: int, heads: int, key_bytes: int, value_bytes: int, page_size: int, unit: int, units: int
) -> tuple[hip_launch.Grid, tuple[int, ...]]:
    """The grid, and the arguments from `page_size` to `rows_a_block`; bytes are those of a head."""
    columns = heads * max(key_bytes, value_bytes) // unit
    found = hip_launch.append_paged_kv_cache(rows, columns, units=units)
    key = hip_launch.unit_divisors(heads, key_bytes, unit, found.rows_a_block)
    value = hip_launch.unit_divisors(heads, value_bytes, unit, found.rows_a_block)
    return found.grid, (page_size, *key, *value, found.rows_a_block)


_page_magic = functools.lru_cache(maxsize=256)(hip_launch.page_magic)


@functools.lru_cache(maxsize=4096)
def _dense(rows: int, row_bytes: int) -> tuple[hip_launch.Grid, hip_launch.DenseAppend] | None:
    found = hip_launch.append_dense(rows, row_bytes)
    return None if found is None else (found.grid, found)


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
    reads, writes = tensors, (k_cache, v_cache)
    tables = tuple(array.data_ptr() for array in tensors[2:])
    counts = (entries, _page_magic(page_size))
    alike = key_bytes == value_bytes and keys[1:3] == values[1:3] and keys[4:] == values[4:]
    dense = alike and unit == hip_launch.PACK_BYTES and _is_dense(keys, heads, key_bytes)
    if dense and (found := _dense(key.shape[0], heads * key_bytes)):
        places = (keys[0], values[0], tables[0], tables[1], tables[3], tables[2], keys[3], values[3])
        dense_args = (*places, keys[4] // unit, *counts, *found[1], batch, pool, page_size)
        _launch(APPEND_DENSE, found[0], hip_launch.APPEND_THREADS, dense_args, reads, writes)
        return
    units = gpu_of(key).units
    grid, shape = _shape(key.shape[0], heads, key_bytes, value_bytes, page_size, unit, units)
    args = (*keys, *values, *tables, *counts, key.shape[0], batch, pool, *shape, unit, 0)
    _launch(APPEND, grid, hip_launch.THREADS, args, reads, writes)


def _launch(
    kernel: Kernel,
    grid: hip_launch.Grid,
    block: int,
    values: tuple[int, ...],
    reads: tuple[torch.Tensor, ...],
    writes: tuple[torch.Tensor, ...],
) -> None:
    launcher = gpu_of(reads[0]).kernel(kernel)
    args = launcher.arguments()
    args.fill(*values)
    launcher.launch(grid, block, args, reads, writes)


def _places(new: torch.Tensor, cache: torch.Tensor) -> tuple[int, ...]:
    """The arguments of `_tokens`: addresses, and strides in bytes."""
    size = new.itemsize
    row, head, _ = new.stride()
    page, slot, cache_head, _ = cache.stride()
    return (
        *(new.data_ptr(), row * size, head * size),
        *(cache.data_ptr(), page * size, slot * size, cache_head * size),
    )


def _is_dense(places: tuple[int, ...], heads: int, head_bytes: int) -> bool:
    """Whether tokens, and slots of a page, follow each other without gaps."""
    _, row, head, _, _, slot, cache_head = places
    return head == cache_head == head_bytes and row == slot == heads * head_bytes
