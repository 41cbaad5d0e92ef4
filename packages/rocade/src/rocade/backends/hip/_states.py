"""Merges and sums of attention states: arguments out of tensors, geometry, one launch.

Letters: n result rows, S states a row, m rows of all states together, H heads, D head dims.
"""

from __future__ import annotations

import functools

import torch

from rocade.backends._gpu import Gpu, Kernel, gpu_of
from rocade_kernels import hip_abi, hip_launch
from rocade_kernels.runtime import Layout

_TILES = hip_launch.Tiles._fields
_TAIL = (*_TILES, "form", "fixed", "slice_shift")
_LISTS = ("v", "v_row", "v_state", "v_head")


def _state(name: str) -> tuple[str, ...]:
    return (
        f"v_{name}",
        f"v_{name}_row",
        f"v_{name}_head",
        f"s_{name}",
        f"s_{name}_row",
        f"s_{name}_head",
    )


PAIR = Kernel(
    "merge_state",
    Layout(
        hip_abi.MergeStateArgs,
        (
            *_state("a"),
            *_state("b"),
            *_state("out"),
            "mask",
            *_TILES,
            "form",
        ),
    ),
    "strided",
)
PAIR_DENSE = Kernel(
    "merge_state",
    Layout(
        hip_abi.MergeStateDenseArgs,
        ("v_a", "s_a", "v_b", "s_b", "v_out", "s_out", *hip_launch.DensePair._fields),
    ),
)
MERGE = Kernel(
    "merge_states",
    Layout(
        hip_abi.MergeStatesArgs,
        (
            *_LISTS,
            *("s", "s_row", "s_state", "s_head"),
            *_state("out"),
            "indptr",
            "states",
            *_TAIL,
        ),
    ),
)
SUM = Kernel(
    "attention_sum",
    Layout(
        hip_abi.AttentionSumArgs,
        (
            *_LISTS,
            *("v_out", "v_out_row", "v_out_head"),
            "indptr",
            "states",
            *_TAIL,
        ),
    ),
)


_CONTIGUOUS = torch.Tensor.is_contiguous


def freed(*tensors: torch.Tensor) -> ValueError | None:
    """The error for a tensor whose storage was freed (`resize_(0)`), if there is one."""
    for tensor in tensors:
        if tensor.numel() and not tensor.data_ptr():
            return ValueError(f"a tensor of shape {list(tensor.shape)} has no memory: its storage was freed")
    return None


@functools.lru_cache(maxsize=4096)
def _pair_tiles(rows: int, heads: int, head_bytes: int) -> tuple[hip_launch.Grid, hip_launch.Tiles]:
    tiles = hip_launch.merge_state(rows, heads, head_bytes)
    return tiles.grid, tiles


@functools.lru_cache(maxsize=4096)
def _dense_pair(
    rows: int, heads: int, head_bytes: int, wave: int, in_place: bool
) -> tuple[hip_launch.Grid, hip_launch.DensePair] | None:
    found = hip_launch.merge_state_dense(rows, heads, head_bytes, wave=wave, in_place=in_place)
    return None if found is None else (found.grid, found)


def _merged_dense(gpu: Gpu, tensors: tuple[torch.Tensor, ...], at: tuple[int, ...]) -> bool:
    """Launch the plain variant if it takes the tensors of `merge_pair`, whose addresses are `at`."""
    a, w, b, x, out, y = at
    if (a | b | out) % hip_launch.PACK_BYTES or not all(map(_CONTIGUOUS, tensors)):
        return False
    v = tensors[0]
    rows, heads, dim = v.shape
    found = _dense_pair(rows, heads, dim * v.itemsize, gpu.wave, y in (w, x))
    if found is None:
        return False
    launcher = gpu.kernel(PAIR_DENSE, v.dtype)
    args = launcher.arguments()
    args.fill(*at, *found[1])
    launcher.launch(found[0], hip_launch.PAIR_THREADS, args, tensors[:4], tensors[4:])
    return True


def merge_pair(
    v_a: torch.Tensor,
    s_a: torch.Tensor,
    v_b: torch.Tensor,
    s_b: torch.Tensor,
    v_out: torch.Tensor,
    s_out: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> None:
    """Merge two states `[n, H, D]`, `[n, H]`; rows whose `mask [n]` is 0 are not written."""
    gpu = gpu_of(v_a)
    rows, heads, dim = v_a.shape
    size = v_a.itemsize
    a, b, out = v_a.data_ptr(), v_b.data_ptr(), v_out.data_ptr()
    w, x, y = s_a.data_ptr(), s_b.data_ptr(), s_out.data_ptr()
    if not (a and b and out and w and x and y) and (error := freed(v_a, s_a, v_b, s_b, v_out, s_out)):
        raise error
    tensors = (v_a, s_a, v_b, s_b, v_out, s_out)
    if mask is None and _merged_dense(gpu, tensors, (a, w, b, x, out, y)):
        return
    grid, tiles = _pair_tiles(rows, heads, dim * size)
    a_row, a_head, _ = v_a.stride()
    b_row, b_head, _ = v_b.stride()
    out_row, out_head, _ = v_out.stride()
    mixed = a | b | out | (a_row | a_head | b_row | b_head | out_row | out_head) * size
    w_row, w_head = s_a.stride()
    x_row, x_head = s_b.stride()
    y_row, y_head = s_out.stride()
    launcher = gpu.kernel(PAIR, v_a.dtype)
    args = launcher.arguments()
    args.fill(
        *(a, a_row, a_head, w, w_row, w_head),
        *(b, b_row, b_head, x, x_row, x_head),
        *(out, out_row, out_head, y, y_row, y_head),
        0 if mask is None else mask.data_ptr(),
        *tiles,
        hip_launch.form(mixed, dense=False),
    )
    reads = (v_a, s_a, v_b, s_b) if mask is None else (v_a, s_a, v_b, s_b, mask)
    launcher.launch(grid, hip_launch.PAIR_THREADS, args, reads, (v_out, s_out))


@functools.lru_cache(maxsize=4096)
def _list_tiles(
    rows: int, heads: int, head_bytes: int, length: int, units: int, wave: int
) -> tuple[hip_launch.Grid, hip_launch.Tiles, int]:
    found = hip_launch.lists(rows, heads, head_bytes, length, units=units, wave=wave)
    return found.tiles.grid, *found


def merge_lists(
    v: torch.Tensor,
    s: torch.Tensor | None,
    v_out: torch.Tensor,
    s_out: torch.Tensor | None,
    indptr: torch.Tensor | None = None,
) -> None:
    """Merge `v[i]` of `v [n, S, H, D]`, or rows `indptr[i]:indptr[i + 1]` of `v [m, H, D]`, into row i.

    Without `s` they are added up. No states of a row give zeros and an lse of -inf.
    """
    gpu = gpu_of(v_out)
    rows, heads, dim = v_out.shape
    size = v.itemsize
    if indptr is None:
        (row, state, head, _), fixed, states = v.stride(), v.shape[1], v.shape[1]
        length = fixed
    else:
        row, (state, head, _), fixed, states = 0, v.stride(), 0, v.shape[0]
        length = -(-states // rows)
    grid, tiles, slice_shift = _list_tiles(rows, heads, dim * size, length, gpu.units, gpu.wave)
    out_row, out_head, _ = v_out.stride()
    at, out = v.data_ptr(), v_out.data_ptr()
    mixed = at | out | (row | state | head | out_row | out_head) * size
    dense = head == out_head == dim and (s is None or s_out is None or s.stride(-1) == s_out.stride(-1) == 1)
    front = (at, row, state, head)
    back = (
        0 if indptr is None else indptr.data_ptr(),
        states,
        *tiles,
        hip_launch.form(mixed, dense),
        fixed,
        slice_shift,
    )
    if s is None or s_out is None:
        _launch(gpu, SUM, grid, (v,), indptr, (v_out,), (*front, out, out_row, out_head, *back))
        return
    lse = (s.data_ptr(), *(s.stride() if indptr is None else (0, *s.stride())))
    result = (out, out_row, out_head, s_out.data_ptr(), *s_out.stride())
    _launch(gpu, MERGE, grid, (v, s), indptr, (v_out, s_out), (*front, *lse, *result, *back))


def _launch(
    gpu: Gpu,
    kernel: Kernel,
    grid: hip_launch.Grid,
    reads: tuple[torch.Tensor, ...],
    indptr: torch.Tensor | None,
    writes: tuple[torch.Tensor, ...],
    values: tuple[int, ...],
) -> None:
    if error := freed(*reads, *writes):
        raise error
    launcher = gpu.kernel(kernel, writes[0].dtype)
    args = launcher.arguments()
    args.fill(*values)
    launcher.launch(grid, hip_launch.THREADS, args, reads if indptr is None else (*reads, indptr), writes)
