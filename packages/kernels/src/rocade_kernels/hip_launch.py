"""Grid and block of each HIP kernel, and the magic numbers in its arguments, from plain numbers.

The caller gives facts of the device (`units`: compute units or SMs, `wave`: lanes of a wave). Nothing here
imports torch or arch_caps.
"""

from __future__ import annotations

from typing import NamedTuple

THREADS = 256  # of a block, in all kernels here; kThreads of their sources
PACK_BYTES = 16  # of one access
MAX_BLOCKS = 2**31 - 1

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
    return 0 if divisor == 1 else -(-(2**bits) // divisor)


class PairGeometry(NamedTuple):
    """Launch of merge_state."""

    grid: Grid
    block: int
    rows_a_thread: int


def merge_state(rows: int, columns: int, *, units: int, masked: bool) -> PairGeometry:
    """Geometry of merge_state over `rows` rows of `columns` packs; two rows a thread when there are enough.

    With a mask it is one row a thread: rows of a thread follow each other then.
    """
    enough = rows * columns >= 2 * units * THREADS * 4
    rows_a_thread = 2 if enough and not masked else 1
    groups = -(-rows // rows_a_thread)
    return PairGeometry((-(-groups * columns // THREADS), 1, 1), THREADS, rows_a_thread)
