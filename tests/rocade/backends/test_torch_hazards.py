"""What the plain backend must survive: lost pages, NaN where nobody looks, huge strides, small workspaces."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.rocade.backends.build import NAN, Call, Spec, build, variant
from tests.rocade.backends.check import assert_close

from arch_caps import DType, MaskKind, PosEncoding
from rocade._plan import KV, State
from rocade._problem import Level, PageTable, Problem
from rocade.backends import REGISTRY
from rocade.conformance import oracle, tolerances

BACKEND = REGISTRY["torch"]
MIXED = [([5, 1, 0, 3, 40], [5, 30, 4, 0, 70])]
BATCH = [([1, 1, 7, 1, 90, 1], [40, 700, 30, 2500, 1100, 40])]


def answer(call: Call) -> State:
    return call.answer(BACKEND.plan(call.request, call.problem))


@pytest.mark.parametrize("stray", [-1, -(1 << 31), 1000, (1 << 31) - 1])
@pytest.mark.parametrize("page_size", [4, 2048])
def test_pages_outside_the_pool_are_skipped(stray: int, page_size: int) -> None:
    """Their keys count as unseen: the rest of the request, and other requests, are exact."""
    call = build(Spec([([2, 2], [11, 9])], page_size=page_size))
    table = call.problem.levels[0].pages
    assert table is not None
    lost_entry = int(table.indptr[1]) - 1  # the last page of request 0
    table.indices[lost_entry] = stray
    got = answer(call)
    kept = (11 - 1) // page_size * page_size
    assert_close(State(got.out[2:], got.lse[2:]), rows(call.expected, slice(2, 4)))
    k, v = (
        pool[table.indices[int(table.indptr[0]) : lost_entry].long()].flatten(0, 1) for pool in call.kv[0]
    )
    want = oracle.attend(call.q[:2], k[:kept], v[:kept], oracle.Rules(scale=call.spec.scale))
    assert_close(State(got.out[:2], got.lse[:2]), want)


def rows(want: oracle.Reference, part: slice) -> oracle.Reference:
    return oracle.Reference(*(column[part] for column in want))


def test_an_empty_pool() -> None:
    call = build(Spec([([2], [8])], page_size=4))
    call.kv = (KV(*(pool[:0] for pool in call.kv[0])),)
    got = answer(call)
    assert (got.out == 0).all()
    assert (got.lse == float("-inf")).all()


@pytest.mark.parametrize("page_size", [0, 4])
def test_values_that_a_mask_hides_may_be_nan(page_size: int) -> None:
    """A key that no row of a request may see is as good as unused. Its value would turn 0 * NaN into NaN."""
    spec = Spec([([2, 1], [9, 6])], page_size=page_size, mask=MaskKind.CUSTOM)
    call = build(spec)
    assert call.problem.mask is not None
    call.problem.mask.bits.zero_()
    call.problem.mask.bits[0] = 0b00000001  # request 0: row 0 sees key 0
    for pool in call.kv[0]:
        keep = pool[token_of(call, 0)].clone()
        pool.fill_(NAN)
        pool[token_of(call, 0)] = keep
    got = answer(call)
    v = call.kv[0].v[token_of(call, 0)]
    torch.testing.assert_close(got.out[0], v.repeat_interleave(2, 0))
    assert (got.out[1:] == 0).all()
    assert (got.lse[1:] == float("-inf")).all()


@pytest.mark.parametrize("bad", [NAN, float("inf"), float("-inf")])
@pytest.mark.parametrize("page_size", [0, 4])
def test_a_value_reaches_no_row_that_does_not_see_it(page_size: int, bad: float) -> None:
    """The last key of a causal request: its last row sees it, and the rows before do not."""
    call = build(Spec([([5], [9])], page_size=page_size, mask=MaskKind.CAUSAL))
    want = answer(call)
    call.kv[0].v[token_of(call, 8)][..., 3] = bad
    got = answer(call)
    assert torch.equal(got.out[:4], want.out[:4])
    assert not got.out[4, :, 3].isfinite().any()
    assert torch.equal(got.out[4, :, :3], want.out[4, :, :3])
    assert torch.equal(got.lse, want.lse)


def token_of(call: Call, key: int) -> tuple[int, ...]:
    """Index of key `key` of request 0 in the pool."""
    level = call.problem.levels[0]
    if level.pages is None:
        assert level.kv_indptr is not None
        return (int(level.kv_indptr[0]) + key,)
    page_size = level.pages.page_size
    page = level.pages.indices[int(level.pages.indptr[0]) + key // page_size]
    return int(page), key % page_size


@pytest.mark.parametrize("window_left", [0, 3])
def test_values_left_of_every_window_may_be_nan(window_left: int) -> None:
    call = build(Spec([([1, 1], [30, 2000])], page_size=16, window_left=window_left))
    want = answer(call)
    for b, kv_len in enumerate((30, 2000)):
        for key in range(kv_len - 1 - window_left):
            table = call.problem.levels[0].pages
            assert table is not None
            page = table.indices[int(table.indptr[b]) + key // 16]
            call.kv[0].k[page, key % 16] = NAN
            call.kv[0].v[page, key % 16] = NAN
    got = answer(call)
    assert torch.equal(got.out, want.out)
    assert torch.equal(got.lse, want.lse)


def test_inputs_are_left_alone() -> None:
    for spec in (
        Spec(MIXED, page_size=3),
        Spec(MIXED, mask=MaskKind.CUSTOM),
        Spec(MIXED, pos=PosEncoding.ROPE_LLAMA),
    ):
        call = build(spec)
        before = [x.clone() for x in (call.q, *call.kv[0])]
        answer(call)
        for x, copy in zip((call.q, *call.kv[0]), before, strict=True):
            assert torch.equal(x.nan_to_num(7.0), copy.nan_to_num(7.0))


def test_page_strides_beyond_32_bits() -> None:
    """Pages 2^31 elements apart, in address space that is never touched between them."""
    stride = (1 << 31) + 64
    pool = torch.empty(2 * stride + 64, dtype=torch.float8_e5m2)  # virtual memory: three pages of it are used
    cache = pool.as_strided((3, 2, 2, 8), (stride, 16, 8, 1))
    cache.copy_(torch.randn(3, 2, 2, 8))
    call = build(Spec([([1], [6])], page_size=2, dims=(8, 8), kv_dtype=DType.FP8_E5M2))
    table = PageTable(
        torch.tensor([0, 3]).int(), torch.tensor([2, 0, 1]).int(), torch.tensor([2]).int(), 2, 2
    )
    level = Level(call.problem.levels[0].qo_indptr, torch.tensor([6]).int(), pages=table)
    call.problem = Problem((level,), 1, call.problem.device)
    call.kv = (KV(cache, cache),)
    keys = torch.cat([cache[page].float() for page in (2, 0, 1)])
    assert_close(answer(call), oracle.attend(call.q, keys, keys, oracle.Rules(scale=call.spec.scale)))


@pytest.mark.parametrize("offset", [0, 64, 1])
def test_a_workspace_is_used_and_never_overrun(offset: int) -> None:
    call = build(Spec(BATCH, page_size=16, mask=MaskKind.CAUSAL))
    plan = BACKEND.plan(call.request, call.problem)
    want = call.answer(plan)
    size = plan.workspace_bytes
    buffer = torch.full((size + offset + 256,), 0x7F, dtype=torch.uint8)
    call.problem = replace(call.problem, workspace=buffer[offset : offset + size])
    got = answer(call)
    assert torch.equal(got.out, want.out)
    assert torch.equal(got.lse, want.lse)
    assert (buffer[offset : offset + size] == 0x7F).all() == (offset == 1)  # misaligned: not used at all
    assert (buffer[:offset] == 0x7F).all()
    assert (buffer[offset + size :] == 0x7F).all()


def test_a_small_workspace_is_not_used() -> None:
    call = build(Spec(BATCH, page_size=16))
    want = answer(call)
    small = torch.full((128,), 0x7F, dtype=torch.uint8)
    call.problem = replace(call.problem, workspace=small)
    assert torch.equal(answer(call).out, want.out)
    assert (small == 0x7F).all()


@pytest.mark.parametrize("page_size", [0, 16])
@pytest.mark.parametrize("facts", [{"disable_split_kv": True}, {"fixed_split_size": 128}])
def test_a_request_has_the_same_bits_in_any_batch(page_size: int, facts: dict[str, object]) -> None:
    spec = Spec(BATCH, page_size=page_size, mask=MaskKind.CAUSAL, facts=facts)
    call = build(spec)
    together = answer(call)
    for b in range(len(BATCH[0][0])):
        single = only(call, b)
        alone = answer(single)
        first, last = call.problem.levels[0].qo_indptr[b : b + 2].tolist()
        assert torch.equal(alone.out, together.out[first:last])
        assert torch.equal(alone.lse, together.lse[first:last])


def only(call: Call, b: int) -> Call:
    """Request b of a single-level call, by itself."""
    level = call.problem.levels[0]
    first, last = level.qo_indptr[b : b + 2].tolist()
    qo_indptr, kv_len = torch.tensor([0, last - first]).int(), level.kv_len[b : b + 1]
    if level.pages is None:
        assert level.kv_indptr is not None
        part = Level(qo_indptr, kv_len, kv_indptr=level.kv_indptr[b : b + 2])
    else:
        table = level.pages
        own = (table.indptr[b : b + 2], table.indices, table.last_page_len[b : b + 1])
        part = Level(qo_indptr, kv_len, PageTable(*own, table.page_size, table.max_page))
    problem = replace(call.problem, levels=(part,), num_rows=last - first)
    return replace(call, problem=problem, q=call.q[first:last])


def test_cascade_rows_have_the_same_bits_in_any_batch() -> None:
    """A shared level is attended request by request, so that who shares it does not matter."""
    facts: dict[str, object] = {"disable_split_kv": True}
    call = build(Spec([([4], [900]), ([1, 1, 2], [3, 40, 7])], page_size=16, facts=facts))
    together = answer(call)
    shared, own = call.problem.levels
    level_call = replace(call, problem=replace(call.problem, levels=(own,)))
    for b, (first, last) in enumerate(((0, 1), (1, 2), (2, 4))):
        alone = only(level_call, b)
        prefix = shared.with_rows(torch.tensor([0, last - first]).int())
        alone.problem = replace(alone.problem, levels=(prefix, *alone.problem.levels))
        got = answer(alone)
        assert torch.equal(got.out, together.out[first:last])
        assert torch.equal(got.lse, together.lse[first:last])


def test_same_inputs_give_the_same_bits() -> None:
    call = build(variant(Spec(BATCH), page_size=16, mask=MaskKind.CAUSAL))
    plan = BACKEND.plan(call.request, call.problem)
    first, second = call.answer(plan), call.answer(plan)
    assert torch.equal(first.out, second.out)
    assert torch.equal(first.lse, second.lse)


def test_the_page_table_is_read_at_every_run() -> None:
    """Graph replay moves pages under a plan."""
    call = build(Spec([([1, 1], [8, 8])], page_size=8))
    plan = BACKEND.plan(call.request, call.problem)
    before = call.answer(plan)
    table = call.problem.levels[0].pages
    assert table is not None
    first = int(table.indptr[0])
    table.indices[first : first + 2] = table.indices[first : first + 2].flip(0).clone()
    call.q.copy_(call.q.flip(0).clone())
    after = call.answer(plan)
    assert torch.equal(after.out, before.out.flip(0))


@pytest.mark.parametrize("keys", [1024, 5000])
def test_equal_keys_do_not_pile_up_rounding_errors(keys: int) -> None:
    """Each sum over equal terms is rounded the same way, so errors of a long chain would add up."""
    call = build(Spec([([1, 20], [keys, keys])], page_size=16))
    for pool in call.kv[0]:
        pool.copy_(pool[:1, :1].expand_as(pool).clone())
    call.q.zero_()
    value = call.kv[0].v[0, 0].double()
    got = answer(call)
    want = value.repeat_interleave(call.q.shape[1] // value.shape[0], 0).expand_as(got.out)
    allowed = 2.0**-24 * (1 + tolerances.ARITHMETIC) * want.abs()
    assert bool(((got.out.double() - want).abs() <= allowed).all())
