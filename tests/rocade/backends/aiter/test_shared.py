"""What the routes to AITER share: dense rows out of pages, natural logarithms to log2, rows without keys."""

from __future__ import annotations

import math

import pytest
import torch

from arch_caps import DType, MaskKind, Op
from rocade._mask import Visibility
from rocade._plan import KV
from rocade._problem import Level, PageTable
from rocade._request import attention
from rocade.backends.aiter._gather import FlatGather
from rocade.backends.aiter._lse import natural_for, store_log2
from rocade.backends.aiter._unseen import clear, skipped, unseen_rows

CPU = torch.device("cpu")
HEADS, DIM = 2, 8


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def paged(size: int, lens: tuple[int, ...], pages: tuple[int, ...], max_page: int) -> Level:
    """A level whose table starts one entry late and has one entry more than it needs."""
    counts = torch.tensor([-(-n // size) for n in lens], dtype=torch.int32)
    indptr = torch.cat([int32(0), counts.cumsum(0, dtype=torch.int32)]) + 1
    last = torch.tensor([(n - 1) % size + 1 if n else 1 for n in lens], dtype=torch.int32)
    table = PageTable(indptr, int32(-7, *pages, -7), last, size, max_page)
    return Level(int32(*range(len(lens) + 1)), int32(*lens), table)


def pool(pages: int, size: int, *, hnd: bool = False) -> torch.Tensor:
    """Element values tell page, slot, head and dim apart; `hnd` is the transposed view of an HND cache."""
    numbers = torch.arange(pages * size * HEADS * DIM, dtype=torch.float32)
    if hnd:
        return numbers.view(pages, HEADS, size, DIM).transpose(1, 2)
    return numbers.view(pages, size, HEADS, DIM)


@pytest.mark.parametrize("hnd", [False, True])
@pytest.mark.parametrize("size", [1, 3, 16])
def test_gather_is_the_pages_one_after_another(size: int, hnd: bool) -> None:
    lens = (2 * size, 0, 1, 2 * size + 1)
    count = sum(-(-n // size) for n in lens)
    ids = tuple((5 * i + 2) % 11 for i in range(count))
    k = pool(11, size, hnd=hnd)
    gather = FlatGather(paged(size, lens, ids, max(ids)), CPU)
    found = gather.dense(KV(k, -k))
    expected = []
    taken = 0
    for n in lens:
        expected += [k[ids[taken + key // size], key % size] for key in range(n)]
        taken += -(-n // size)
    assert gather.kv_indptr.tolist() == [0, lens[0], lens[0], lens[0] + 1, sum(lens)]
    assert found.k.equal(torch.stack(expected))
    assert found.v.equal(-torch.stack(expected))
    assert found.k.is_contiguous()


def test_gather_reads_the_table_of_each_run() -> None:
    level = paged(2, (3,), (4, 1), 4)
    gather = FlatGather(level, CPU)
    assert level.pages is not None
    level.pages.indices.copy_(int32(-7, 0, 3, -7))
    k = pool(5, 2)
    assert gather.dense(KV(k, k)).k.equal(torch.stack([k[0, 0], k[0, 1], k[3, 0]]))


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1])
def test_a_page_outside_an_unchecked_pool_is_not_a_plausible_number(bad: int) -> None:
    k = pool(5, 2)
    found = FlatGather(paged(2, (4,), (3, bad), -1), CPU).dense(KV(k, k.clone()))
    for rows in found:
        assert rows[:2].equal(k[3])
        assert rows[2:].isnan().all()


def test_gather_from_no_pages() -> None:
    empty = pool(0, 2)
    assert FlatGather(paged(2, (0, 0), (), -1), CPU).dense(KV(empty, empty)).k.shape == (0, HEADS, DIM)
    assert FlatGather(paged(2, (2,), (0,), -1), CPU).dense(KV(empty, empty)).v.isnan().all()


def test_gather_of_more_dtypes_than_float32() -> None:
    k = pool(5, 2).to(torch.bfloat16)
    assert FlatGather(paged(2, (3,), (4, 1), 4), CPU).dense(KV(k, k)).k.dtype is torch.bfloat16


def test_log2_of_a_natural_logarithm_in_any_strides() -> None:
    lse = torch.full((3, 8), 7.0)[:, ::2]
    natural = natural_for(torch.zeros(3, 4, 8, dtype=torch.bfloat16))
    assert (natural.shape, natural.dtype) == ((4, 3), torch.float32)
    assert natural.is_contiguous()
    weights = torch.arange(1.0, 13.0).view(4, 3)
    natural.copy_(weights.log())
    natural[1, 2] = -math.inf
    store_log2(natural, lse)
    expected = weights.log2().t().clone()
    expected[2, 1] = -math.inf
    torch.testing.assert_close(lse, expected, rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("mask", [MaskKind.NONE, MaskKind.CAUSAL])
@pytest.mark.parametrize("window", [-1, 0, 1, 5])
def test_unseen_rows_are_those_that_see_nothing(mask: MaskKind, window: int) -> None:
    lens = [(5, 2), (0, 4), (3, 0), (2, 2), (1, 7), (9, 8), (0, 0)]
    rows = torch.tensor([q for q, _ in lens])
    keys = int32(*(k for _, k in lens))
    level = Level(torch.cat([torch.zeros(1), rows.cumsum(0)]).to(torch.int32), keys, None, keys)
    request = attention(
        Op.BATCH_PREFILL_RAGGED,
        num_qo_heads=1,
        num_kv_heads=1,
        head_dim_qk=8,
        q_dtype=DType.BF16.value,
        causal=mask is MaskKind.CAUSAL,
        window_left=window,
    )
    expected, counts, start = [], [], 0
    for q, n in lens:
        query = torch.arange(q) + n - q
        seen = Visibility(mask, window).visible(query, torch.arange(n))
        sees = torch.full((q,), n > 0) if seen is None else seen.any(-1)
        blind = (~sees).nonzero().flatten().tolist()
        assert blind == list(range(len(blind))), "they are the first rows of their request"
        expected += [start + row for row in blind]
        counts.append(len(blind))
        start += q
    found = unseen_rows(request, level)
    assert found is not None
    assert found.tolist() == expected
    assert skipped(request, level).tolist() == counts


def test_no_unseen_row_is_none() -> None:
    level = Level(int32(0, 2), int32(2), None, int32(0, 2))
    request = attention(
        Op.BATCH_PREFILL_RAGGED,
        num_qo_heads=1,
        num_kv_heads=1,
        head_dim_qk=8,
        q_dtype=DType.BF16.value,
        causal=True,
    )
    assert unseen_rows(request, level) is None


@pytest.mark.parametrize("with_lse", [False, True])
def test_clear(with_lse: bool) -> None:
    out, lse = torch.full((4, 3, 2), torch.nan), torch.full((4, 3), torch.nan)
    clear(torch.tensor([1, 3]), out, lse if with_lse else None)
    assert out[[1, 3]].eq(0).all()
    assert out[[0, 2]].isnan().all()
    assert lse[[1, 3]].eq(-math.inf).all() if with_lse else lse.isnan().all()
