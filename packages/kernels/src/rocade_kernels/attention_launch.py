"""Shapes of the attention kernel's instances, as plain numbers: query rows, keys, threads, LDS."""

from __future__ import annotations

from typing import NamedTuple

HEAD_DIMS = (64, 128, 256)  # other multiples of 8 use the next larger one
ELEMENT_BYTES = 2
AMD_WAVE = 64
WIDE_WAVES = 8  # of a compute unit: this kernel takes so many registers that no more run
PLACES_BYTES = 64  # of where keys lie, in LDS where registers are few
TABLE_ENTRY_BYTES = 16  # of one key's place, when tables fit beside the tiles


class AttentionShape(NamedTuple):
    """What one block of an instance does at a time; hip/attention/attention.hip has the same numbers."""

    rows: int  # packed query rows of a work item
    keys: int  # of a tile: ranges are visited in steps of this
    threads: int
    lds_bytes: int
    blocks: int  # of one compute unit that registers leave room for


def kernel_dim(head_dim: int) -> int:
    """Head dim of the instance that serves `head_dim`.

    Raises:
        ValueError: none does.
    """
    for dim in HEAD_DIMS:
        if 0 < head_dim <= dim and head_dim % 8 == 0:
            return dim
    raise ValueError(f"head_dim is {head_dim}; expected a multiple of 8 up to {HEAD_DIMS[-1]}")


def shape(dim: int, decode: bool, *, wave: int, lds_bytes: int) -> AttentionShape:
    """Shape of the instance for `dim` of HEAD_DIMS, on a GPU with this wave size and LDS."""
    most_keys = lds_bytes // (4 * dim * ELEMENT_BYTES)
    wide = wave == AMD_WAVE
    blocks = 1 if dim > 128 else 3 if decode else 2  # what narrow waves' kernels are compiled for
    if decode:
        waves = 4 if not wide else 2 if most_keys > 64 else 1
        rows, keys, stages = 16, 32 * waves if wide else 64, 4
    elif wide:
        waves = 4 if dim > 128 else 8
        rows, keys, stages = 32 * waves, 32 if most_keys < 64 else 64, 3
    else:
        waves, stages = 4, 2
        rows, keys = (64, 32) if dim > 128 else (128, 64)
    queries = 0 if wide else rows * dim * ELEMENT_BYTES
    pair, tables = (
        2 * keys * dim * ELEMENT_BYTES,
        2 * keys * TABLE_ENTRY_BYTES + (0 if wide else PLACES_BYTES),
    )
    fit = (lds_bytes - queries - tables) // pair
    stages = max(2, min(fit, stages if wide else 2))
    if wide:
        blocks = WIDE_WAVES // waves
    return AttentionShape(rows, keys, waves * wave, stages * pair + tables * (fit >= 2) + queries, blocks)
