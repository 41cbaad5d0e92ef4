"""Grid and block of each HIP kernel, and the magic numbers in its arguments, from plain numbers.

The caller gives facts of the device (`units`: compute units or SMs, `wave`: lanes of a wave). Nothing here
imports torch or arch_caps.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

THREADS = 256  # of a block; kThreads of the sources
PAIR_THREADS = 512  # the same of merge_state
APPEND_THREADS = 128  # the same of append_paged_kv_cache's plain variant
UNALIGNED, ALIGNED, DENSE = 0, 1, 2  # Form of hip/cascade/place.hpp
PACK_BYTES = 16  # of one access
_MAX_BLOCKS = 2**31 - 1

_LEAST_WIDTH = 32  # packs beside each other that fill cache lines
_BLOCKS_A_UNIT = 4  # that keep a compute unit or SM busy
_STATES_A_SLICE = 4  # kBatch of hip/cascade/accumulator.hpp: what a thread loads at a time
_UNITS_A_BLOCK = 1024  # that a block appends: kBatch of append_paged_kv_cache.hip, 4 a thread
_DENSE_UNITS = 4 * APPEND_THREADS  # the same of the plain variant: kUnits there
_LEAST_COLUMNS = 8  # of a token: kLeastColumns there

Grid = tuple[int, int, int]


class Tiles(NamedTuple):
    """How threads find their place, in the order of the argument structs; see hip/cascade/place.hpp."""

    rows: int
    blocks_magic: int
    blocks: int
    columns: int
    packs: int
    packs_magic: int
    width: int
    width_magic: int
    side_rows: int

    @property
    def grid(self) -> Grid:
        """Blocks over columns first, then over rows."""
        return _parts(self.rows, self.side_rows) * self.blocks, 1, 1


def _tiles(rows: int, heads: int, head_bytes: int, threads: int) -> Tiles:
    """Tiles of `threads` threads over `rows` rows of heads of `head_bytes` bytes.

    Raises:
        ValueError: heads do not divide into packs of 16 bytes, or there are too many of them to be numbered.
    """
    packs, rest = divmod(head_bytes, PACK_BYTES)
    columns = heads * packs
    if rest or not columns:
        raise ValueError(f"a head has {head_bytes} bytes; expected a positive multiple of {PACK_BYTES}")
    width = _width(columns, packs, threads)
    blocks = _parts(columns, width)
    tiles = Tiles(
        rows,
        _magic(blocks, 64),
        blocks,
        columns,
        packs,
        _magic(packs, 32),
        width,
        _magic(width, 32),
        threads // width,
    )
    if (columns + width) * packs >= 2**32 or tiles.grid[0] > _MAX_BLOCKS:
        raise ValueError(f"{rows} rows of {heads} heads of {head_bytes} bytes are more than one launch takes")
    return tiles


@cache
def _width(columns: int, packs: int, threads: int) -> int:
    """The columns of a block that leave the fewest of its threads without work, and the most of these.

    They are whole heads unless a single one has more packs than the block has threads.
    """
    step = packs if packs <= threads else 1
    widths = range(step, min(columns, threads) + 1, step)

    def busy(width: int) -> tuple[float, int]:
        return columns * (threads // width) / _parts(columns, width), width

    return max([width for width in widths if width >= _LEAST_WIDTH] or widths, key=busy)


def _magic(divisor: int, bits: int) -> int:
    return 0 if divisor == 1 else _parts(2**bits, divisor)


def alignment(*values: int) -> int:
    """The greatest power of two, 16 at most, that addresses and strides in bytes are all multiples of."""
    mixed = PACK_BYTES
    for value in values:
        mixed |= value
    return mixed & -mixed


def _numbers(count: int, divisor: int) -> bool:
    """Whether numbers below `count` fit 32 bits and are divided exactly by `_magic(divisor, 32)`.

    That of a power of two is exact; see hip/division.hpp.
    """
    return count * (1 if divisor & (divisor - 1) == 0 else divisor) < 2**32


class DensePair(NamedTuple):
    """What merge_state's plain variant is given besides addresses, in the order of its struct."""

    total: int
    packs: int
    packs_magic: int
    width: int
    crosses: int
    reserved: int = 0

    @property
    def grid(self) -> Grid:
        """Blocks of `width` packs."""
        return _parts(self.total, self.width), 1, 1


def merge_state_dense(
    rows: int, heads: int, head_bytes: int, *, wave: int, in_place: bool
) -> DensePair | None:
    """Launch of merge_state's plain variant; None: packs are not whole, or too many to be numbered."""
    packs, rest = divmod(head_bytes, PACK_BYTES)
    total = rows * heads * packs
    if rest or not 0 < packs <= PAIR_THREADS or not _numbers(total + PAIR_THREADS, packs):
        return None
    crosses = in_place and wave % packs != 0
    return DensePair(total, packs, _magic(packs, 32), PAIR_THREADS // packs * packs, int(crosses))


def merge_state(rows: int, heads: int, head_bytes: int) -> Tiles:
    """Tiles of merge_state over `rows` rows; its blocks have PAIR_THREADS threads."""
    return _tiles(rows, heads, head_bytes, PAIR_THREADS)


class Lists(NamedTuple):
    """Launch of merge_states and attention_sum."""

    tiles: Tiles
    slice_shift: int  # 2 to this power slices


def lists(
    rows: int, heads: int, head_bytes: int, length: int, *, units: int, wave: int, slices: int = 0
) -> Lists:
    """Geometry of merge_states and attention_sum: `rows` lists of about `length` states.

    Few rows have their lists cut into slices, so that the device is full. The number of slices changes the
    order of sums: who needs the same bits for any number of rows gives `slices`.
    """
    if not slices:
        slices = 1
        threads, full = rows * heads * head_bytes // PACK_BYTES, units * THREADS * _BLOCKS_A_UNIT
        while slices * wave < THREADS and slices * _STATES_A_SLICE < length and threads * slices < full:
            slices *= 2
    return Lists(_tiles(rows, heads, head_bytes, THREADS // slices), slices.bit_length() - 1)


def form(mixed: int, dense: bool) -> int:
    """The form of a launch's tensors: `mixed` has addresses and strides in bytes or-ed together.

    Args:
        mixed: Its low bits tell whether packs are aligned.
        dense: Whether heads follow each other without gaps in all tensors, lse included.
    """
    return UNALIGNED if mixed % PACK_BYTES else DENSE if dense else ALIGNED


class AppendGeometry(NamedTuple):
    """Launch of append_paged_kv_cache."""

    grid: Grid
    rows_a_block: int


def append_paged_kv_cache(rows: int, columns: int, *, units: int) -> AppendGeometry:
    """Geometry of appending `rows` tokens of `columns` copy units: the wider one of keys and values."""
    few = max(2, 8 * rows // units)  # so many that every unit has a block
    rows_a_block = max(1, min(_UNITS_A_BLOCK // columns, THREADS, few))
    return AppendGeometry((_parts(rows, rows_a_block), 2, 1), rows_a_block)


class DenseAppend(NamedTuple):
    """What the plain variant is given of `total` units and `columns` a token, in the order of its struct."""

    total: int
    columns: int
    columns_magic: int

    @property
    def grid(self) -> Grid:
        """Blocks over units, for keys and for values."""
        return _parts(self.total, _DENSE_UNITS), 2, 1


def append_dense(rows: int, row_bytes: int) -> DenseAppend | None:
    """Launch of append_paged_kv_cache's plain variant over `rows` tokens; None: it does not take them."""
    columns, rest = divmod(row_bytes, PACK_BYTES)
    total = rows * columns
    most = total + _DENSE_UNITS + APPEND_THREADS * columns
    if rest or columns < _LEAST_COLUMNS or not _numbers(most, columns):
        return None
    return DenseAppend(total, columns, _magic(columns, 32))


def page_magic(page_size: int) -> int:
    """Divides any position by the page size."""
    return _magic(page_size, 64)


class UnitDivisors(NamedTuple):
    """How the copy units of a token are found by append_paged_kv_cache."""

    columns: int
    columns_magic: int
    units: int
    units_magic: int


def unit_divisors(heads: int, head_bytes: int, unit: int, rows_a_block: int) -> UnitDivisors:
    """Magic numbers for `heads` heads of `head_bytes` bytes in units of `unit` bytes.

    Raises:
        ValueError: a token has more units than can be numbered.
    """
    units = head_bytes // unit
    columns = heads * units
    if columns * units >= 2**32 or (rows_a_block > 1 and rows_a_block * columns * columns >= 2**32):
        raise ValueError(
            f"{heads} heads of {head_bytes} bytes in units of {unit} are more than can be numbered"
        )
    return UnitDivisors(columns, _magic(columns, 32) if rows_a_block > 1 else 1, units, _magic(units, 32))


def _parts(count: int, size: int) -> int:
    return -(-count // size)
