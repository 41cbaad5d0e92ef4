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
    """Merge states `[n, H, D]`, `[n, H]`."""
    v = a[0]
    rows, heads, dim = v.shape
    tiles = hip_launch.merge_state(rows, heads, dim * v.element_size())
    args = hip_abi.MergeStateArgs(
        *_state(*a), *_state(*b), *_state(*out), address(mask), *tiles, form(a, b, out)
    )
    buffers = (*a, *b, *out, mask)
    assert kernel.name.endswith(hip_launch.merge_state_variant(args.form) or "merge_state"), (
        "the other variant"
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
    """Append `new [nnz, H, D]` to NHD views `[N, S, H, D]` of a cache."""
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
