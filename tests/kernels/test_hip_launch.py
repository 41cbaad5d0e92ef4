"""Geometry of HIP kernels: every pack has one thread, magic numbers divide, slices fill the device."""

from __future__ import annotations

import pytest

from rocade_kernels import hip_launch

H200, MI300X = {"units": 132, "wave": 32}, {"units": 304, "wave": 64}
SHAPES = [(1, 1, 16), (7, 3, 80), (64, 32, 256), (5, 9, 144), (3, 128, 1024), (2, 1, 2048), (11, 20, 160)]


def places(tiles: hip_launch.Tiles, threads: int) -> list[tuple[int, int]]:
    """(row, column) of every thread that has work, by the arithmetic of hip/cascade/place.hpp."""
    found = []
    for block in range(tiles.grid[0]):
        line = block * tiles.blocks_magic >> 64 if tiles.blocks_magic else block
        for thread in range(threads):
            side = thread * tiles.width_magic >> 32 if tiles.width_magic else thread
            column = (block - line * tiles.blocks) * tiles.width + thread - side * tiles.width
            row = line * tiles.side_rows + side
            if side < tiles.side_rows and column < tiles.columns and row < tiles.rows:
                found.append((row, column))
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pair_merge_visits_every_pack_once(shape: tuple[int, int, int]) -> None:
    rows, heads, head_bytes = shape
    tiles = hip_launch.merge_state(rows, heads, head_bytes)
    columns = heads * head_bytes // 16
    everything = [(row, column) for row in range(rows) for column in range(columns)]
    assert sorted(places(tiles, hip_launch.PAIR_THREADS)) == everything
    assert tiles.width % tiles.packs == 0, "a head must not cross blocks: its lse may be merged in place"


@pytest.mark.parametrize("slices", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_lists_visit_every_pack_once(shape: tuple[int, int, int], slices: int) -> None:
    rows, heads, head_bytes = shape
    tiles, _ = hip_launch.lists(rows, heads, head_bytes, 9, **H200, slices=slices)
    columns = heads * head_bytes // 16
    everything = [(row, column) for row in range(rows) for column in range(columns)]
    assert sorted(places(tiles, hip_launch.THREADS // slices)) == everything


def test_magic_numbers_divide() -> None:
    for divisor in (*range(1, 130), 255, 256, 300):
        magic = hip_launch._magic(divisor, 32)
        for x in (*range(600), divisor * 1000 - 1, divisor * 1000, divisor * 1000 + 1):
            assert (x * magic >> 32 if magic else x) == x // divisor


@pytest.mark.parametrize("device", [H200, MI300X])
def test_few_rows_are_cut_into_slices_and_many_are_not(device: dict[str, int]) -> None:
    def slices(rows: int, length: int) -> int:
        return 1 << hip_launch.lists(rows, 32, 256, length, **device).slice_shift

    assert slices(16384, 64) == 1
    assert slices(16, 64) == hip_launch.THREADS // device["wave"], "slices are whole waves"
    assert slices(16, 2) == 1, "there is nothing to cut"


def test_what_cannot_be_numbered_is_refused() -> None:
    with pytest.raises(ValueError, match="a head has 24 bytes"):
        hip_launch.merge_state(1, 1, 24)
    with pytest.raises(ValueError, match="more than one launch takes"):
        hip_launch.merge_state(2**42, 1, 16)
    with pytest.raises(ValueError, match="more than one launch takes"):
        hip_launch.merge_state(1, 2**26, 1024)
    with pytest.raises(ValueError, match="more than can be numbered"):
        hip_launch.unit_divisors(2**26, 1024, 16, 1)


def quotient(number: int, divisor: int, magic: int) -> int:
    """What hip/division.hpp makes of it."""
    return number * magic >> 32 if magic else number // divisor


@pytest.mark.parametrize("packs", [1, 2, 3, 5, 10, 16, 63, 64, 128])
def test_packs_of_dense_pairs_are_numbered_exactly(packs: int) -> None:
    last = 2**32 // packs - hip_launch.PAIR_THREADS - 2 if packs & (packs - 1) else 2**32 - 600
    rows = last // packs
    dense = hip_launch.merge_state_dense(rows, 1, 16 * packs, wave=64, in_place=False)
    assert dense is not None
    assert dense.width % packs == 0
    assert dense.grid[0] * dense.width >= dense.total > (dense.grid[0] - 1) * dense.width
    for number in (0, packs - 1, packs, dense.total - 1, dense.total + hip_launch.PAIR_THREADS - 1):
        assert quotient(number, packs, dense.packs_magic) == number // packs
    assert hip_launch.merge_state_dense(2**32, 1, 16 * packs, wave=64, in_place=False) is None


@pytest.mark.parametrize(
    ("packs", "wave", "crosses"), [(16, 64, 0), (64, 64, 0), (64, 32, 1), (10, 64, 1), (1, 32, 0)]
)
def test_heads_that_may_lie_in_several_waves_are_told_in_place(packs: int, wave: int, crosses: int) -> None:
    found = [
        hip_launch.merge_state_dense(9, 2, 16 * packs, wave=wave, in_place=in_place)
        for in_place in (False, True)
    ]
    assert [dense and dense.crosses for dense in found] == [0, crosses]


@pytest.mark.parametrize("columns", [8, 9, 30, 64, 128, 640])
def test_units_of_dense_appends_are_numbered_exactly(columns: int) -> None:
    most = 2**32 // columns // columns - 200
    rows = 2**32 // columns - 200 if columns & (columns - 1) == 0 else most
    dense = hip_launch.append_dense(rows, 16 * columns)
    assert dense is not None
    assert dense.total == rows * columns <= dense.grid[0] * 512 < dense.total + 512
    for number in (0, columns - 1, columns, dense.total - 1, dense.total, dense.total + 511):
        assert quotient(number, columns, dense.columns_magic) == number // columns
    assert hip_launch.append_dense(2**32, 16 * columns) is None


def test_what_is_not_dense_is_told() -> None:
    assert hip_launch.merge_state_dense(1, 1, 24, wave=32, in_place=False) is None
    assert hip_launch.append_dense(7, 16 * 7) is None
    assert hip_launch.append_dense(7, 16 * 8 + 8) is None


@pytest.mark.parametrize(("values", "wanted"), [((0, 32, 160), 16), ((4096, 24), 8), ((6,), 2), ((5, 16), 1)])
def test_alignment(values: tuple[int, ...], wanted: int) -> None:
    assert hip_launch.alignment(*values) == wanted


def test_form() -> None:
    assert hip_launch.form(4096 | 256, dense=True) == hip_launch.DENSE
    assert hip_launch.form(4096 | 272, dense=False) == hip_launch.ALIGNED
    assert hip_launch.form(4096 | 8, dense=True) == hip_launch.UNALIGNED


@pytest.mark.parametrize("rows", [1, 64, 1000, 131072])
def test_appends_cover_every_token(rows: int) -> None:
    geometry = hip_launch.append_paged_kv_cache(rows, 128, units=132)
    assert geometry.grid[0] * geometry.rows_a_block >= rows > (geometry.grid[0] - 1) * geometry.rows_a_block
    assert geometry.rows_a_block <= hip_launch.THREADS
