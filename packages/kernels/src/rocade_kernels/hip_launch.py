"""Grid and block of each HIP kernel, and the magic numbers in its arguments, from plain numbers.

The caller gives facts of the device (`units`: compute units or SMs, `wave`: lanes of a wave). Nothing here
imports torch or arch_caps.
"""

from __future__ import annotations

from typing import NamedTuple

THREADS = 256  # of a block, in all kernels here; kThreads of their sources
PACK_BYTES = 16  # of one access
MAX_BLOCKS = 2**31 - 1

_BLOCKS_A_UNIT = 4  # that keep a compute unit or SM busy
_STATES_A_SLICE = 4  # kBatch of hip/cascade/lists.hpp: what a thread loads at a time
_UNITS_A_BLOCK = 2048  # that a block appends: 8 a thread

Grid = tuple[int, int, int]


class Divisors(NamedTuple):
    """How the packs of a result row are found: see hip/cascade/place.hpp and hip/division.hpp."""

    columns_magic: int
    columns: int
    packs: int
    packs_magic: int


def divisors(rows: int, heads: int, head_dim: int, element_size: int) -> Divisors:
    """Magic numbers for `rows` rows of `heads` times `head_dim` elements of `element_size` bytes.

    Raises:
        ValueError: rows do not divide into packs of 16 bytes, or there are too many of them to be numbered.
    """
    packs, rest = divmod(head_dim * element_size, PACK_BYTES)
    columns = heads * packs
    if rest or not columns:
        raise ValueError(
            f"head_dim is {head_dim}; expected a positive multiple of {PACK_BYTES // element_size}"
        )
    if columns >= 2**32 // packs or rows * columns + THREADS >= min(2**64 // columns, MAX_BLOCKS * THREADS):
        raise ValueError(f"{rows} rows of {heads} heads of {head_dim} are more than a launch can number")
    return Divisors(_magic(columns, 64), columns, packs, _magic(packs, 32))


def _magic(divisor: int, bits: int) -> int:
    return 0 if divisor == 1 else _parts(2**bits, divisor)


def alignment(*values: int) -> int:
    """The greatest power of two, 16 at most, that addresses and strides in bytes are all multiples of."""
    mixed = PACK_BYTES
    for value in values:
        mixed |= value
    return mixed & -mixed


class PairGeometry(NamedTuple):
    """Launch of merge_state."""

    grid: Grid
    rows_a_thread: int


def merge_state(rows: int, columns: int, *, units: int, masked: bool, rows_a_thread: int = 0) -> PairGeometry:
    """Geometry of merge_state over `rows` rows of `columns` packs; two rows a thread when there are enough.

    With a mask it is one row a thread: rows of a thread follow each other then.
    """
    if not rows_a_thread:
        enough = rows * columns >= 2 * units * THREADS * _BLOCKS_A_UNIT
        rows_a_thread = 2 if enough and not masked else 1
    groups = _parts(rows, rows_a_thread)
    return PairGeometry((_parts(groups * columns, THREADS), 1, 1), rows_a_thread)


class ListGeometry(NamedTuple):
    """Launch of merge_states and attention_sum."""

    grid: Grid
    slices: int


def lists(rows: int, columns: int, length: int, *, units: int, wave: int, slices: int = 0) -> ListGeometry:
    """Geometry of merge_states and attention_sum: `rows` lists of about `length` states.

    Few rows have their lists cut into slices, so that the device is full. The number of slices changes the
    order of sums: who needs the same bits for any number of rows gives `slices`.
    """
    if not slices:
        slices = 1
        while (
            slices * wave < THREADS
            and slices * _STATES_A_SLICE < length
            and rows * columns * slices < units * THREADS * _BLOCKS_A_UNIT
        ):
            slices *= 2
    return ListGeometry((_parts(rows * columns, THREADS // slices), 1, 1), slices)


class AppendGeometry(NamedTuple):
    """Launch of append_paged_kv_cache."""

    grid: Grid
    rows_a_block: int


def append_paged_kv_cache(rows: int, columns: int, *, units: int) -> AppendGeometry:
    """Geometry of appending `rows` tokens of `columns` copy units: the wider one of keys and values."""
    rows_a_block = max(1, min(_UNITS_A_BLOCK // columns, THREADS, 2 * rows // (units * _BLOCKS_A_UNIT)))
    return AppendGeometry((_parts(rows, rows_a_block), 2, 1), rows_a_block)


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
