"""Plan time: cuts a problem into row tiles with the key range each needs, and groups tiles that run together.

All arithmetic is int64 on the host. Letters: T query rows, B requests of a level, n tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from arch_caps import Request
from rocade._mask import Visibility
from rocade._problem import Level, Problem

_LOGITS = 1 << 21  # logits of one step: 8 MiB, near what a CPU's caches hold
_KEYS_CPU = 2048  # keys gathered in one step; more falls out of the caches
_KEYS_DEVICE = 16384  # a GPU wants more work a launch
_MAX_ROWS = 256


@dataclass(frozen=True, slots=True)
class Sizes:
    """Limits of one step; functions of the request and device alone, never of the batch."""

    rows: int  # query rows of a tile at most
    keys: int  # keys of a tile's step at most
    step_keys: int  # keys of all tiles in a step
    step_logits: int

    @staticmethod
    def of(request: Request, device: torch.device) -> Sizes:
        """Tiles of many rows take fewer keys a step, so that logits stay near the caches."""
        step_keys = _KEYS_CPU if device.type == "cpu" else _KEYS_DEVICE
        rows = max(8, min(_MAX_ROWS, _LOGITS // (1024 * request.num_qo_heads)))
        return Sizes(rows=rows, keys=1024, step_keys=step_keys, step_logits=_LOGITS * step_keys // _KEYS_CPU)


class Tiles(NamedTuple):
    """int64 `[n]` columns, one tile a row. Keys are counted from the start of their level's range."""

    row: torch.Tensor  # first query row
    rows: torch.Tensor
    entry: torch.Tensor  # the request's first entry in the page table, or its first row of dense K and V
    key_begin: torch.Tensor  # where gathering starts: key_first, moved back to a page boundary
    key_first: torch.Tensor  # first key that any row may see
    key_last: torch.Tensor  # one past the last such key
    offset: torch.Tensor  # global position of the level's key 0
    pos_first: torch.Tensor  # least and greatest position of the rows
    pos_last: torch.Tensor
    mask_byte: (
        torch.Tensor
    )  # custom mask: the request's first byte, the tile's row in the request, its kv_len
    mask_row: torch.Tensor
    kv_len: torch.Tensor

    def take(self, index: torch.Tensor | slice) -> Tiles:
        """The tiles at `index`."""
        return Tiles(*(column[index] for column in self))

    def to(self, device: torch.device) -> Tiles:
        """The same columns on `device`."""
        return Tiles(*(column.to(device) for column in self))


@dataclass(frozen=True)
class Batch:
    """Tiles of one level that run as one, cut from the level's tiles when first run: plans stay cheap."""

    level: int
    part: slice
    level_host: Tiles
    level_tiles: Tiles  # the same on the device
    rows: int  # rows of the tallest tile; shorter ones repeat their last row
    keep: (
        torch.Tensor | None
    )  # int64 on the device: which of the flat [n, rows] are no repeats; None when all
    chunk: int  # keys of a step, a multiple of the page size unless pages are larger
    keys: int  # keys of the longest tile, from its key_begin
    shortest: int  # keys of the shortest

    @property
    def size(self) -> int:
        """Number of tiles."""
        return int(self.part.stop - self.part.start)

    @cached_property
    def host(self) -> Tiles:
        """The batch's tiles, to take numbers from."""
        return self.level_host.take(self.part)

    @cached_property
    def tiles(self) -> Tiles:
        """The batch's tiles, to compute with."""
        return self.level_tiles.take(self.part)


def cut(
    request: Request, problem: Problem, visibility: Visibility, sizes: Sizes
) -> tuple[list[Batch], torch.Tensor]:
    """All batches, level by level, and the global position of each query row, int64 `[T]`, host."""
    offsets, position = _positions(problem)
    alone = request.fixed_split_size is not None or request.disable_split_kv
    batches: list[Batch] = []
    for index, level in enumerate(problem.levels):
        rows_of = problem.levels[-1] if alone else level
        tiles = _tiles(level, rows_of, offsets[index], position, visibility, sizes)
        if problem.mask is not None:
            tiles = tiles._replace(mask_byte=problem.mask.indptr.to(torch.int64)[tiles.mask_byte])
        batches += _batches(index, tiles, level, request, sizes, alone, problem.device)
    return batches, position


def _positions(problem: Problem) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Per level, the global position of its key 0 for each row; and each row's own position. int64 `[T]`."""
    total = torch.zeros(problem.num_rows, dtype=torch.int64, device="cpu")
    offsets = []
    for level in problem.levels:
        offsets.append(total)
        total = total + torch.repeat_interleave(level.kv_len.to(torch.int64), _lengths(level.qo_indptr))
    last = problem.levels[-1].qo_indptr.to(torch.int64)
    lengths = _lengths(last)
    from_end = torch.arange(problem.num_rows, device="cpu") - torch.repeat_interleave(last[1:], lengths)
    return offsets, total + from_end


def _lengths(indptr: torch.Tensor) -> torch.Tensor:
    return indptr.to(torch.int64).diff()


def _tiles(
    level: Level,
    rows_of: Level,
    offset: torch.Tensor,
    position: torch.Tensor,
    visibility: Visibility,
    sizes: Sizes,
) -> Tiles:
    """Row tiles of at most `sizes.rows` rows that lie in one request of `rows_of` (and so of `level`)."""
    indptr = level.qo_indptr.to(torch.int64)
    start, row, rows = _row_tiles(rows_of.qo_indptr.to(torch.int64), sizes.rows)
    owner = torch.searchsorted(indptr, row, right=True) - 1
    start = indptr[owner]
    kv_len = level.kv_len.to(torch.int64)[owner]
    pos_first, pos_last = _bounds(position, rows)
    shift = offset[row]
    first, last = visibility.key_ranges(pos_first - shift, pos_last - shift, kv_len)
    if level.pages is not None:
        page_size, table = level.pages.page_size, level.pages.indptr
        begin = first // page_size * page_size if page_size <= sizes.keys else first
    else:
        assert level.kv_indptr is not None
        begin, table = first, level.kv_indptr
    entry = table.to(torch.int64)[owner]
    tiles = Tiles(
        row, rows, entry, begin, first, last, shift, pos_first, pos_last, owner, row - start, kv_len
    )
    return tiles.take(first < last)


def _row_tiles(indptr: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Start of the segment, first row and number of rows of each tile, in row order."""
    lengths = indptr.diff()
    count = (lengths + most - 1) // most
    start = torch.repeat_interleave(indptr[:-1], count)
    end = torch.repeat_interleave(indptr[1:], count)
    nth = torch.arange(start.numel(), device="cpu") - torch.repeat_interleave(count.cumsum(0) - count, count)
    row = start + nth * most
    return start, row, (end - row).clamp_max(most)


def _bounds(position: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Least and greatest position in each tile; tiles lie one after another and cover all rows."""
    tile = torch.repeat_interleave(rows)
    empty = torch.zeros(rows.numel(), dtype=torch.int64, device="cpu")
    least = empty.scatter_reduce(0, tile, position, "amin", include_self=False)
    return least, empty.scatter_reduce(0, tile, position, "amax", include_self=False)


def _batches(
    index: int,
    tiles: Tiles,
    level: Level,
    request: Request,
    sizes: Sizes,
    alone: bool,
    device: torch.device,
) -> list[Batch]:
    """Tiles of like height and length together; one at a time (`alone`) for batch-invariant results."""
    unit = level.pages.page_size if level.pages is not None else 1
    unit = unit if unit <= sizes.keys else 1
    keys = tiles.key_last - tiles.key_begin
    tall, chunk = _power_of_two(tiles.rows), _power_of_two(keys).clamp_max(sizes.keys)
    chunk = (chunk // unit * unit).clamp_min(unit)
    order = torch.argsort(
        (tall << 48) + (chunk << 32) + keys, stable=True
    )  # like lengths waste little padding
    host = tiles.take(order)
    on_device = host.to(device)
    kinds = list(zip(tall[order].tolist(), chunk[order].tolist(), strict=True))
    rows, lengths = tiles.rows[order].tolist(), keys[order].tolist()
    batches: list[Batch] = []
    first = 0
    while first < len(kinds):
        limit = 1 if alone else _tiles_per_batch(*kinds[first], request.num_qo_heads, sizes)
        last = first + 1
        while last < len(kinds) and last - first < limit and kinds[last] == kinds[first]:
            last += 1
        part = slice(first, last)
        keep = _no_repeats(rows[part], device)
        chunk_keys, longest = kinds[first][1], lengths[last - 1]
        batches.append(
            Batch(index, part, host, on_device, max(rows[part]), keep, chunk_keys, longest, lengths[first])
        )
        first = last
    return batches


def _no_repeats(rows: list[int], device: torch.device) -> torch.Tensor | None:
    """Which of the flat `[n, max(rows)]` rows are a tile's own; None when all are."""
    most = max(rows)
    if min(rows) == most:
        return None
    return torch.tensor([i * most + row for i, n in enumerate(rows) for row in range(n)], device=device)


def _tiles_per_batch(rows: int, chunk: int, heads: int, sizes: Sizes) -> int:
    return max(1, min(sizes.step_keys // chunk, sizes.step_logits // (rows * chunk * heads)))


def _power_of_two(x: torch.Tensor) -> torch.Tensor:
    """The least power of two that is not below x >= 1; exact up to 2^53."""
    return torch.exp2((x.to(torch.float64)).log2().ceil()).to(torch.int64)
