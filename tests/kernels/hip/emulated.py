"""Runs HIP kernels in the emulator: compiles, fills argument structs, launches, and demands no finding."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from tests import needs

import rocade_emulator as emu
from rocade_kernels import hip_abi, hip_launch
from rocade_kernels.build import CompilerMissingError, Instance, code

TARGETS = ("gfx942", "gfx950")
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
UNITS, WAVE = 304, 64  # compute units of the largest GPU; lanes of a wave
SCHEDULES: tuple[dict[str, Any], ...] = (
    {},
    {"schedule": "run_to_barrier"},
    {"schedule": "random", "seed": 5, "quantum": 9},
)
Pair = tuple[torch.Tensor, torch.Tensor]


@functools.cache
def program(kernel: str, target: str, dtype: str = "", variant: str = "") -> emu.Program:
    """A kernel of the package, compiled for an AMD GPU."""
    try:
        built = code(Instance(kernel, target, dtype, 0, variant))
    except CompilerMissingError as error:
        needs.missing(str(error))
    return emu.Program.from_bytes(built.image, target, name=f"{kernel} {variant}".strip())


def launch(
    kernel: emu.Program,
    grid: hip_launch.Grid,
    args: ctypes.Structure,
    buffers: Sequence[Any],
    block: int = hip_launch.THREADS,
    **options: Any,
) -> emu.Result:
    """Launch with the raw bytes of the struct; any finding fails, remarks too."""
    given = [buffer for buffer in buffers if buffer is not None]
    result = emu.launch(kernel, None, grid, block, bytes(args), buffers=given, **options)
    assert not result.reports, result.describe()
    return result


def address(tensor: torch.Tensor | None) -> int:
    """Where the elements are; 0 for no tensor."""
    return 0 if tensor is None else tensor.data_ptr()


def form(*states: tuple[torch.Tensor, torch.Tensor | None]) -> int:
    """What `hip_launch.form` says of values `[..., H, D]`, each with its lse `[..., H]` or None."""
    mixed, dense = 0, True
    for v, s in states:
        for number in (address(v), *(step * v.element_size() for step in v.stride()[:-1])):
            mixed |= number
        dense &= v.stride(-2) == v.shape[-1] and (s is None or s.stride(-1) == 1)
    return hip_launch.form(mixed, dense)


def _state(v: torch.Tensor, s: torch.Tensor) -> tuple[int, ...]:
    return address(v), v.stride(0), v.stride(1), address(s), s.stride(0), s.stride(1)


def merge_state(
    kernel: emu.Program, a: Pair, b: Pair, out: Pair, mask: torch.Tensor | None = None, **options: Any
) -> emu.Result:
    """Merge states `[n, H, D]`, `[n, H]`; `kernel` must be the variant for them."""
    v = a[0]
    rows, heads, dim = v.shape
    buffers = (*a, *b, *out, mask)
    tensors = (*a, *b, *out)
    if mask is None and form(a, b, out) and all(t.is_contiguous() for t in tensors):
        assert "strided" not in kernel.name
        dense = hip_launch.merge_state_dense(
            rows,
            heads,
            dim * v.element_size(),
            wave=WAVE,
            in_place=address(out[1]) in map(address, (a[1], b[1])),
        )
        assert dense is not None
        given = hip_abi.MergeStateDenseArgs(*map(address, tensors), *dense)
        return launch(kernel, dense.grid, given, buffers, hip_launch.PAIR_THREADS, **options)
    assert "strided" in kernel.name
    tiles = hip_launch.merge_state(rows, heads, dim * v.element_size())
    args = hip_abi.MergeStateArgs(
        *_state(*a),
        *_state(*b),
        *_state(*out),
        address(mask),
        *tiles,
        min(form(a, b, out), hip_launch.ALIGNED),
    )
    return launch(kernel, tiles.grid, args, buffers, hip_launch.PAIR_THREADS, **options)


def merge_lists(
    kernel: emu.Program,
    v: torch.Tensor,
    s: torch.Tensor | None,
    out: tuple[torch.Tensor, torch.Tensor | None],
    indptr: torch.Tensor | None = None,
    slices: int = 0,
    **options: Any,
) -> emu.Result:
    """Merge (or, without `s`, add up) lists: `v [n, S, H, D]`, or `v [m, H, D]` with `indptr [n + 1]`."""
    v_out, s_out = out
    rows, heads, dim = v_out.shape
    lead = 2 if indptr is None else 1
    length = v.shape[1] if indptr is None else -(-v.shape[0] // rows)
    head_bytes = dim * v.element_size()
    geometry = hip_launch.lists(rows, heads, head_bytes, length, units=UNITS, wave=WAVE, slices=slices)

    def listed(x: torch.Tensor) -> tuple[int, ...]:
        return address(x), *(0,) * (2 - lead), *x.stride()[: lead + 1]

    args = (hip_abi.AttentionSumArgs if s is None else hip_abi.MergeStatesArgs)(
        *listed(v),
        *(() if s is None else listed(s)),
        address(v_out),
        v_out.stride(0),
        v_out.stride(1),
        *(() if s_out is None else (address(s_out), *s_out.stride())),
        address(indptr),
        v.shape[0],
        *geometry.tiles,
        form((v, s), out),
        v.shape[1] if indptr is None else 0,
        geometry.slice_shift,
    )
    return launch(kernel, geometry.tiles.grid, args, (v, s, v_out, s_out, indptr), **options)


def append(
    kernel: emu.Program,
    new: Pair,
    caches: Pair,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    indices: torch.Tensor,
    indptr: torch.Tensor,
    units: int = UNITS,
    **options: Any,
) -> emu.Result:
    """Append `new [nnz, H, D]` to NHD views `[N, S, H, D]` of a cache, with the variant strided."""
    assert "strided" in kernel.name
    rows, heads = new[0].shape[:2]
    size = new[0].element_size()
    bytes_of = [[step * size for step in t.stride()[:-1]] for t in (*new, *caches)]
    dims = [t.shape[-1] * size for t in new]
    unit = hip_launch.alignment(*map(address, (*new, *caches)), *itertools.chain(*bytes_of), *dims)
    geometry = hip_launch.append_paged_kv_cache(rows, heads * max(dims) // unit, units=units)
    sides = [hip_launch.unit_divisors(heads, dim, unit, geometry.rows_a_block) for dim in dims]
    args = hip_abi.AppendPagedKvCacheArgs(
        *(address(new[0]), *bytes_of[0], address(caches[0]), *bytes_of[2]),
        *(address(new[1]), *bytes_of[1], address(caches[1]), *bytes_of[3]),
        *map(address, (batch_indices, positions, indices, indptr)),
        indices.numel(),
        hip_launch.page_magic(caches[0].shape[1]),
        rows,
        indptr.numel() - 1,
        caches[0].shape[0],
        caches[0].shape[1],
        *sides[0],
        *sides[1],
        geometry.rows_a_block,
        unit,
    )
    buffers = (*new, *caches, batch_indices, positions, indices, indptr)
    return launch(kernel, geometry.grid, args, buffers, **options)


def append_dense(
    kernel: emu.Program,
    new: Pair,
    caches: Pair,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    indices: torch.Tensor,
    indptr: torch.Tensor,
    **options: Any,
) -> emu.Result:
    """The same with the plain variant; keys and values are of one shape, without gaps."""
    assert "strided" not in kernel.name
    row, page = new[0][0].numel(), caches[0].stride(0)
    assert all(t.is_contiguous() and t.shape == new[0].shape for t in new)
    assert all(t[0].is_contiguous() and t.stride(0) == page for t in caches)
    size = new[0].element_size()
    dense = hip_launch.append_dense(new[0].shape[0], row * size)
    assert dense is not None
    args = hip_abi.AppendPagedKvCacheDenseArgs(
        *map(address, (*new, batch_indices, positions, indptr, indices, *caches)),
        page * size // hip_launch.PACK_BYTES,
        indices.numel(),
        hip_launch.page_magic(caches[0].shape[1]),
        *dense,
        indptr.numel() - 1,
        *caches[0].shape[:2],
    )
    buffers = (*new, *caches, batch_indices, positions, indices, indptr)
    return launch(kernel, dense.grid, args, buffers, hip_launch.APPEND_THREADS, **options)
