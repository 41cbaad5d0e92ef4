"""append_paged_kv_cache in the emulator: bit for bit what the oracle writes, and not a byte more."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from tests.kernels.hip import emulated
from tests.kernels.hip.emulated import DTYPES, SCHEDULES, TARGETS

import rocade_emulator as emu
from rocade.conformance import oracle_states

PAGES, SIZE = 9, 4


class Table(NamedTuple):
    """Pages of three requests, the second without any, and places of seven tokens, one of them padding."""

    indices: tuple[int, ...] = (7, 0, 5, 3, 8)
    indptr: tuple[int, ...] = (0, 3, 3, 5)
    batch: tuple[int, ...] = (0, 2, 0, -1, 2, 0, 0)
    positions: tuple[int, ...] = (11, 0, 4, 0, 7, 5, 0)

    def tensors(self) -> list[torch.Tensor]:
        """int32, in the order of `emulated.append`."""
        arrays = (self.batch, self.positions, self.indices, self.indptr)
        return [torch.tensor(array, dtype=torch.int32) for array in arrays]


def cache(dtype: torch.dtype, heads: int, dim: int, layout: str = "NHD") -> torch.Tensor:
    """An NHD view `[N, S, H, D]` of a cache full of NaN."""
    shape = (PAGES, heads, SIZE, dim) if layout == "HND" else (PAGES, SIZE, heads, dim)
    made = torch.full(shape, float("nan")).to(dtype)
    return made.transpose(1, 2) if layout == "HND" else made


def check(
    target: str,
    new: tuple[torch.Tensor, torch.Tensor],
    caches: tuple[torch.Tensor, torch.Tensor],
    table: Table,
    dense: bool = False,
    **options: Any,
) -> None:
    """Append and compare the whole caches with the oracle's."""
    batch = [b if 0 <= b < len(table.indptr) - 1 else -1 for b in table.batch]
    wanted = [
        oracle_states.append(rows, batch, table.positions, before, table.indices, table.indptr)
        for rows, before in zip(new, caches, strict=True)
    ]
    if dense:
        program = emulated.program("append_paged_kv_cache", target)
        emulated.append_dense(program, new, caches, *table.tensors(), **options)
    else:
        program = emulated.program("append_paged_kv_cache", target, "", "strided")
        emulated.append(program, new, caches, *table.tensors(), **options)
    for got, expected in zip(caches, wanted, strict=True):
        assert torch.equal(got.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


def tokens(dtype: torch.dtype, heads: int, dim: int, beside: int = 0, count: int = 7) -> torch.Tensor:
    """New tokens; `beside` elements of NaN behind each head."""
    wide = torch.full((count, heads, dim + beside), float("nan")).to(dtype)
    return wide[..., :dim].copy_(torch.randn(count, heads, dim))


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("target", TARGETS)
def test_under_every_schedule(target: str, layout: str, options: dict[str, Any]) -> None:
    new = tokens(torch.bfloat16, 3, 128), tokens(torch.bfloat16, 3, 80)
    caches = cache(torch.bfloat16, 3, 128, layout), cache(torch.bfloat16, 3, 80, layout)
    check(target, new, caches, Table(), units=1, **options)


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize(("heads", "dim"), [(8, 128), (3, 80), (1, 64), (40, 128)])
@pytest.mark.parametrize("target", TARGETS)
def test_tokens_without_gaps(target: str, heads: int, dim: int, options: dict[str, Any]) -> None:
    """A block takes several tokens, some of them in part, or a part of one, or ends behind the last one."""
    count = 19
    new = tokens(torch.bfloat16, heads, dim, count=count), tokens(torch.bfloat16, heads, dim, count=count)
    both = torch.full((PAGES, 2, SIZE, heads, dim), float("nan"), dtype=torch.bfloat16)
    batch = tuple(-1 if i in (3, 9) else 0 for i in range(count))
    table = Table((7, 0, 5, 3, 8), (0, 5), batch, (*range(count),))
    check(target, new, (both[:, 0], both[:, 1]), table, dense=True, **options)


@pytest.mark.parametrize("target", TARGETS)
def test_tokens_without_gaps_and_without_a_place_are_skipped(target: str) -> None:
    new = tokens(torch.float16, 2, 64), tokens(torch.float16, 2, 64)
    caches = cache(torch.float16, 2, 64), cache(torch.float16, 2, 64)
    table = Table(indices=(7, 99, -1, 3, 8), batch=(3, 0, 0, 1, 0, 0, 2), positions=(0, -1, 12, 0, 4, 8, 5))
    program = emulated.program("append_paged_kv_cache", target)
    emulated.append_dense(program, new, caches, *table.tensors())
    for rows, got in zip(new, caches, strict=True):
        assert torch.equal(got[8, 1], rows[6])
        assert int((~got.isnan()).sum()) == rows[6].numel()


@pytest.mark.parametrize("indptr", [(-1, 2_000_000_000, 3, 2_000_000_000), (2_147_483_647, 5, 5, 5)])
@pytest.mark.parametrize("target", TARGETS)
def test_a_table_that_lies_reads_nothing_outside_without_gaps(target: str, indptr: tuple[int, ...]) -> None:
    new = tokens(torch.float16, 1, 64), tokens(torch.float16, 1, 64)
    caches = cache(torch.float16, 1, 64), cache(torch.float16, 1, 64)
    table = Table(indptr=indptr, positions=(2_147_483_647,) * 7)
    emulated.append_dense(emulated.program("append_paged_kv_cache", target), new, caches, *table.tensors())
    assert all(bool(x.isnan().all()) for x in caches)


@pytest.mark.parametrize("target", TARGETS)
def test_pages_far_apart_without_gaps(target: str) -> None:
    apart = (1 << 36) + 64  # bytes between pages: more than 2^32 units
    buffers = [emu.SparseBuffer(PAGES * apart) for _ in range(2)]
    caches = tuple(
        buffer.torch(torch.bfloat16, (PAGES, SIZE, 2, 64), (apart // 2, 128, 64, 1)) for buffer in buffers
    )
    new = tokens(torch.bfloat16, 2, 64), tokens(torch.bfloat16, 2, 64)
    emulated.append_dense(emulated.program("append_paged_kv_cache", target), new, caches, *Table().tensors())
    for rows, got in zip(new, caches, strict=True):
        assert torch.equal(got[5, 3], rows[0])
        assert torch.equal(got[8, 3], rows[4])


@pytest.mark.parametrize("beside", [0, 4, 1])
@pytest.mark.parametrize("dtype", [*DTYPES.values(), torch.float8_e4m3fn])
@pytest.mark.parametrize("target", TARGETS)
def test_every_dtype_and_alignment(target: str, dtype: torch.dtype, beside: int) -> None:
    new = tokens(dtype, 2, 40, beside), tokens(dtype, 2, 24, beside)
    check(target, new, (cache(dtype, 2, 40), cache(dtype, 2, 24)), Table())


@pytest.mark.parametrize("units", [1, 304])
@pytest.mark.parametrize("target", TARGETS)
def test_tokens_without_a_place_are_skipped(target: str, units: int) -> None:
    new = tokens(torch.float16, 2, 64), tokens(torch.float16, 2, 64)
    caches = cache(torch.float16, 2, 64), cache(torch.float16, 2, 64)
    # No such request; before the first position; beyond the request's pages; a request without pages; pages
    # outside the pool; and one token that is written.
    table = Table(indices=(7, 99, -1, 3, 8), batch=(3, 0, 0, 1, 0, 0, 2), positions=(0, -1, 12, 0, 4, 8, 5))
    program = emulated.program("append_paged_kv_cache", target, "", "strided")
    emulated.append(program, new, caches, *table.tensors(), units=units)
    for rows, got in zip(new, caches, strict=True):
        assert torch.equal(got[8, 1], rows[6])
        assert int((~got.isnan()).sum()) == rows[6].numel()


@pytest.mark.parametrize("target", TARGETS)
def test_a_table_that_lies_reads_nothing_outside(target: str) -> None:
    new = tokens(torch.float16, 1, 8), tokens(torch.float16, 1, 8)
    caches = cache(torch.float16, 1, 8), cache(torch.float16, 1, 8)
    table = Table(indptr=(-1, 2_000_000_000, 3, 2_000_000_000), positions=(2_147_483_647,) * 7)
    program = emulated.program("append_paged_kv_cache", target, "", "strided")
    emulated.append(program, new, caches, *table.tensors())
    assert all(bool(x.isnan().all()) for x in caches)


@pytest.mark.parametrize("target", TARGETS)
def test_offsets_beyond_32_bits(target: str) -> None:
    apart = (1 << 32) + 64  # bytes between pages
    buffers = [emu.SparseBuffer(PAGES * apart) for _ in range(2)]
    caches = tuple(
        buffer.torch(torch.bfloat16, (PAGES, SIZE, 2, 64), (apart // 2, 128, 64, 1)) for buffer in buffers
    )
    new = tokens(torch.bfloat16, 2, 64), tokens(torch.bfloat16, 2, 64)
    table = Table()
    emulated.append(
        emulated.program("append_paged_kv_cache", target, "", "strided"), new, caches, *table.tensors()
    )
    for rows, got in zip(new, caches, strict=True):
        assert torch.equal(got[5, 3], rows[0])
        assert torch.equal(got[8, 3], rows[4])
        assert int(got[8].count_nonzero()) == int(rows[4].count_nonzero())
