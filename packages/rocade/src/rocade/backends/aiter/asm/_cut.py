"""From the requests of a batch to those of a launch: parts of a kind that a code object is right for.

A kernel takes each request's first query row, rows, first key and keys, and a causal one aligns its last row
with its last key. So any block of rows is a request of its own: with the keys up to its last row's.
Letters: B requests of the batch, R requests of a launch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from arch_caps import MaskKind, Request
from rocade._problem import Level
from rocade.backends.aiter._unseen import skipped


class Blocks(NamedTuple):
    """Requests of a launch: int64 `[R]` each, host. None is without rows or keys."""

    first_row: torch.Tensor
    rows: torch.Tensor
    first_key: torch.Tensor
    keys: torch.Tensor

    def where(self, chosen: torch.Tensor) -> Blocks:
        """Those of a bool or index `[R]`."""
        return Blocks(*(field[chosen] for field in self))


def blocks_of(request: Request, level: Level, kv_indptr: torch.Tensor) -> Blocks:
    """The requests without the rows that see no key; `kv_indptr` int32 `[B + 1]` says where keys are."""
    blind = skipped(request, level)
    every = Blocks(
        level.qo_indptr[:-1].to(torch.int64) + blind,
        level.qo_indptr.diff().to(torch.int64) - blind,
        kv_indptr[:-1].to(torch.int64),
        level.kv_len.to(torch.int64),
    )
    return every.where(every.rows > 0)


def causal_tiles(blocks: Blocks, tile: int) -> Blocks:
    """Blocks of at most `tile` rows that are causal, longest first, as workgroups start in this order."""
    which, nth = _numbered(-(-blocks.rows // tile))
    first = nth * tile
    rows = (blocks.rows[which] - first).clamp_max(tile)
    keys = blocks.keys[which] - (blocks.rows[which] - first - rows)
    found = Blocks(blocks.first_row[which] + first, rows, blocks.first_key[which], keys)
    return found.where(torch.argsort(keys, descending=True, stable=True))


def single_rows(blocks: Blocks) -> Blocks:
    """A request for each row, which sees all keys: no mask, as a causal kernel understands it."""
    which, nth = _numbered(blocks.rows)
    ones = torch.ones_like(which)
    return Blocks(blocks.first_row[which] + nth, ones, blocks.first_key[which], blocks.keys[which])


def _numbered(counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Parts of `counts [R]`: int64 `[sum]` whose part each is, and its number among that one's."""
    which = torch.arange(counts.numel(), device="cpu").repeat_interleave(counts)
    return which, torch.arange(which.numel(), device="cpu") - (counts.cumsum(0) - counts)[which]


def split(request: Request, blocks: Blocks, tile: int, min_keys: int) -> dict[bool, Blocks]:
    """What the causal kernel (True) and the one without a mask (False) are given.

    Args:
        request: says whether the blocks are causal.
        blocks: of the batch.
        tile: rows that the causal kernel may be given in a request.
        min_keys: what the other one needs.
    """
    if request.mask is MaskKind.CAUSAL:
        return {True: causal_tiles(blocks, tile)}
    enough = blocks.keys >= min_keys
    return {True: single_rows(blocks.where(~enough)), False: blocks.where(enough)}
