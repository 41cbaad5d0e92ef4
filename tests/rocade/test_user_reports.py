"""Public bug reports about attention libraries as small tests: states, log-sum-exp, masks, plan against run.

Each docstring names the report; the test rules out its kind of fault, on every backend.
"""

from __future__ import annotations

import math

import pytest
import torch
from tests.rocade.paged import (
    BACKENDS,
    assert_matches,
    assert_state_close,
    indptr,
    int32,
    put,
    rand,
    workspace,
)

import rocade
from arch_caps import ROWS, Status
from rocade import cascade
from rocade.conformance import oracle

NEG_INF = float("-inf")
backends = pytest.mark.parametrize("backend", BACKENDS)
State = tuple[torch.Tensor, torch.Tensor]


def prefill(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, backend: str, **options: object) -> State:
    return rocade.single_prefill_with_kv_cache(q, k, v, backend=backend, return_lse=True, **options)


def planned_decode(lengths: list[int], backend: str, **options: object) -> tuple[object, State]:
    """A planned decode wrapper for 4/2 heads of 16, page size 4, and its cache."""
    keys = [rand(n, 2, 16, seed=b) for b, n in enumerate(lengths)]
    pages = put(keys, keys, 4)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(*pages.table, 4, 2, 16, 4, q_data_type="float32", **options)
    return wrapper, pages.cache


@backends
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_two_empty_states_merge_to_an_empty_state(backend: str, dtype: torch.dtype) -> None:
    """flashinfer#4051: exp2(-inf - -inf) made NaN."""
    v, s = torch.zeros(1, 1, 64, dtype=dtype), torch.full((1, 1), NEG_INF)
    twice_v, twice_s = torch.stack((v, v), 1), torch.stack((s, s), 1)
    in_place = (v.clone(), s.clone())
    cascade.merge_state_in_place(*in_place, v, s, backend=backend)
    results = [
        cascade.merge_state(v, s, v, s, backend=backend),
        cascade.merge_states(twice_v, twice_s, backend=backend),
        cascade.merge_states(twice_v[:, :0], twice_s[:, :0], backend=backend),
        cascade.variable_length_merge_states(twice_v[0], twice_s[0], int32([0, 2]), backend=backend),
        cascade.variable_length_merge_states(twice_v[0], twice_s[0], int32([1, 1]), backend=backend),
        in_place,
    ]
    for merged_v, merged_s in results:
        assert merged_v.eq(0).all()
        assert merged_s.eq(NEG_INF).all()


@backends
def test_a_quarter_of_empty_rows_gives_exact_zeros(backend: str) -> None:
    """vllm#39148: a merge with 25 % of rows empty on both sides was full of NaN."""
    a, b = (rand(64, 3, 32, seed=i) for i in (1, 2))
    s_a, s_b = (rand(64, 3, seed=i) for i in (3, 4))
    for x in (a, b):
        x[::4] = 0.0
    s_a[::4], s_b[::4] = NEG_INF, NEG_INF
    v, s = cascade.merge_state(a, s_a, b, s_b, backend=backend)
    assert v[::4].eq(0).all()
    assert s[::4].eq(NEG_INF).all()
    assert v[1::4].isfinite().all()


@backends
def test_lse_has_base_two(backend: str) -> None:
    """flashinfer#2113, #4485: 10.1168 against 7.0124; callers and backends disagreed about the base."""
    q, k, v = rand(3, 4, 32), rand(20, 2, 32, seed=1), rand(20, 2, 32, seed=2)
    _, lse = prefill(q, k, v, backend)
    logits = torch.einsum("nhd,mhd->nhm", q, k.repeat_interleave(2, 1)) / math.sqrt(32)
    torch.testing.assert_close(lse, logits.double().logsumexp(-1).div(math.log(2)).float())


@backends
def test_prefix_and_suffix_merge_to_the_single_pass(backend: str) -> None:
    """sglang#40903: a base-2 LSE went into a natural-log merge; 16 heads, dims 192/128, prefix 4096."""
    q, k, v = rand(2, 16, 192), rand(4100, 1, 192, seed=1), rand(4100, 1, 128, seed=2)
    left, right = (
        prefill(q, k[:4096], v[:4096], backend),
        prefill(q, k[4096:], v[4096:], backend, causal=True),
    )
    whole = prefill(q, k, v, backend, causal=True)
    assert_state_close(cascade.merge_state(*left, *right, backend=backend), whole)


def test_the_table_says_which_base_an_lse_has() -> None:
    """vllm#47079: a capability table should carry the base. What callers get is log2 in every row."""
    attention = [row for (op, _), row in ROWS.items() if op.is_attention]
    own = {row.backend: row.lse.value for row in attention if row.status is Status.BUILT}
    converted = "natural log, converted to log2"
    assert own == {
        "cpu": "log2",
        "hip": "log2",
        "torch": "log2",
        "aiter_asm": converted,
        "aiter_ck": converted,
    }


@backends
def test_no_keys_give_minus_infinity(backend: str) -> None:
    """flash-attention#978: +inf for an empty K."""
    out, lse = prefill(rand(3, 4, 32), rand(0, 2, 32), rand(0, 2, 32), backend)
    assert out.eq(0).all()
    assert lse.eq(NEG_INF).all()


@backends
def test_cascade_of_sixteen_requests_equals_no_sharing(backend: str) -> None:
    """vllm#22103: 10 of 18 answers were right with cascade, 18 of 18 without; 16 requests, 32/8 heads."""
    shared, own = rand(96, 8, 64), [rand(1 + 3 * b, 8, 64, seed=b) for b in range(16)]
    q = rand(16, 32, 64, seed=99)
    both = [torch.cat((shared, k)) for k in own]
    flat = [shared, *own]
    pages = put(flat, flat, 16)
    wrapper = cascade.MultiLevelCascadeAttentionWrapper(2, workspace(), backend=backend)
    tables = [
        (pages.indptr[:2], pages.indices, pages.last_page_len[:1]),
        (pages.indptr[1:], pages.indices, pages.last_page_len[1:]),
    ]
    arrays = [[table[i] for table in tables] for i in range(3)]
    ends = list(range(17))
    wrapper.plan([int32([0, 16]), int32(ends)], *arrays, 32, 8, 64, 16, causal=True, q_data_type="float32")
    result = wrapper.run(q, pages.cache, return_lse=True)
    assert_matches(result, oracle.batch(q, ends, both, both, oracle.Rules(0.125, True)), torch.float32)


def test_cascade_plans_an_fp8_cache() -> None:
    """flashinfer#1350: the cascade's plan had no kv_data_type."""
    keys = [rand(n, 2, 16, seed=n) for n in (8, 3, 5)]
    fp8 = [k.to(torch.float8_e4m3fn).float() for k in keys]
    pages = put(keys, keys, 4)
    cache = tuple(c.to(torch.float8_e4m3fn) for c in pages.cache)
    q = rand(2, 4, 16, dtype=torch.bfloat16)
    wrapper = cascade.MultiLevelCascadeAttentionWrapper(2, workspace())
    wrapper.plan(
        [int32([0, 2]), int32([0, 1, 2])],
        [pages.indptr[:2], pages.indptr[1:]],
        [pages.indices] * 2,
        [pages.last_page_len[:1], pages.last_page_len[1:]],
        *(4, 2, 16, 4),
        q_data_type=torch.bfloat16,
        kv_data_type=torch.float8_e4m3fn,
    )
    both = [torch.cat((fp8[0], k)) for k in fp8[1:]]
    ref = oracle.batch(q, [0, 1, 2], both, both, oracle.Rules(0.25))
    assert_matches(wrapper.run(q, cache, return_lse=True), ref, torch.bfloat16)


@backends
def test_fully_masked_rows_are_written(backend: str) -> None:
    """flashinfer#1533: rows without a visible key kept what the output buffer held."""
    wrapper, cache = planned_decode([5, 0, 3, 0], backend)
    out, lse = torch.full((4, 4, 16), float("nan")), torch.full((4, 4), float("nan"))
    wrapper.run(rand(4, 4, 16), cache, out=out, lse=lse, return_lse=True)
    assert out[[1, 3]].eq(0).all()
    assert lse[[1, 3]].eq(NEG_INF).all()
    assert out.isfinite().all()


@backends
def test_lse_is_rows_by_heads_whatever_the_wrapper(backend: str) -> None:
    """flashinfer#5258: a padded layout on one backend, [tokens, heads] on another."""
    wrapper, cache = planned_decode([5, 2, 9], backend)
    keys = [rand(n, 2, 16, seed=n) for n in (7, 1, 4)]
    ragged = rocade.BatchPrefillWithRaggedKVCacheWrapper(workspace(), backend=backend)
    ragged.plan(indptr([2, 0, 3]), indptr([7, 1, 4]), 4, 2, 16, q_data_type="float32")
    flat = torch.cat(keys)
    for lse, rows in (
        (wrapper.run(rand(3, 4, 16), cache, return_lse=True)[1], 3),
        (ragged.run(rand(5, 4, 16), flat, flat, return_lse=True)[1], 5),
        (prefill(rand(5, 4, 16), flat, flat, backend)[1], 5),
    ):
        assert lse.shape == (rows, 4)
        assert lse.dtype is torch.float32


@backends
def test_a_window_at_run_must_be_the_planned_one(backend: str) -> None:
    """sglang#31501: a window given only to run() was compiled out and ignored."""
    wrapper, cache = planned_decode([9, 6], backend)
    with pytest.raises(ValueError, match="window_left"):
        wrapper.run(rand(2, 4, 16), cache, window_left=3)
    planned, cache = planned_decode([9, 6], backend, window_left=3)
    planned.run(rand(2, 4, 16), cache, window_left=3)


@backends
@pytest.mark.parametrize("paged", [True, False])
def test_legacy_forward_honours_the_soft_cap(backend: str, paged: bool) -> None:
    """sglang#33915: logits_soft_cap at forward() was dropped: cosine 0.59 to the capped answer."""
    q, k = 12 * rand(4, 4, 16), rand(9, 2, 16, seed=1)
    rules = oracle.Rules(0.25, causal=True, soft_cap=50.0)
    if paged:
        pages = put([k], [k], 4)
        wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(workspace(), backend=backend)
        wrapper.begin_forward(indptr([4]), *pages.table, 4, 2, 16, 4, q_data_type="float32")
        result = wrapper.forward_return_lse(q, pages.cache, causal=True, logits_soft_cap=50.0)
    else:
        ragged = rocade.BatchPrefillWithRaggedKVCacheWrapper(workspace(), backend=backend)
        ragged.begin_forward(indptr([4]), indptr([9]), 4, 2, 16, q_data_type="float32")
        result = ragged.forward_return_lse(q, k, k, causal=True, logits_soft_cap=50.0)
    assert_matches(result, oracle.attend(q, k, k, rules), torch.float32)


@pytest.mark.parametrize("shape", [(10, 15), (10, 25), (20, 10), (9, 20)])
def test_a_mask_of_another_size_is_refused(shape: tuple[int, int]) -> None:
    """flashinfer#3176: custom_mask (10, 15) for 10 queries and 20 keys was read out of bounds."""
    q, k = rand(10, 8, 16, dtype=torch.float16), rand(20, 4, 16, dtype=torch.float16)
    with pytest.raises(ValueError, match="custom_mask"):
        rocade.single_prefill_with_kv_cache(q, k, k, custom_mask=torch.ones(shape, dtype=torch.bool))


@backends
def test_planning_without_a_mask_forgets_the_old_one(backend: str) -> None:
    """flashinfer#1028: the mask of the plan before was still applied."""
    q, k = rand(4, 4, 16), rand(9, 2, 16, seed=1)
    wrapper = rocade.BatchPrefillWithRaggedKVCacheWrapper(workspace(), backend=backend)
    args = (indptr([4]), indptr([9]), 4, 2, 16)
    wrapper.plan(*args, custom_mask=torch.zeros(36, dtype=torch.bool), q_data_type="float32")
    assert wrapper.run(q, k, k).eq(0).all()
    wrapper.plan(*args, q_data_type="float32")
    result = wrapper.run(q, k, k, return_lse=True)
    assert_matches(result, oracle.attend(q, k, k, oracle.Rules(0.25)), torch.float32)


@backends
def test_a_custom_mask_overrides_causal(backend: str) -> None:
    """flashinfer#1489: both at once gave zeros; the custom mask alone decides."""
    q, k = rand(4, 4, 16), rand(9, 2, 16, seed=1)
    mask = torch.rand(4, 9, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[:, -1] = True
    result = prefill(q, k, k, backend, causal=True, custom_mask=mask)
    assert_matches(result, oracle.attend(q, k, k, oracle.Rules(0.25), mask), torch.float32)


@backends
def test_causal_is_bottom_right_aligned(backend: str) -> None:
    """flashinfer#348: two queries on three keys; row 0 sees two keys, row 1 sees three."""
    q, k = torch.zeros(2, 1, 16), torch.zeros(3, 1, 16)
    v = torch.tensor([3.0, 6.0, 30.0]).reshape(3, 1, 1).expand(3, 1, 16).contiguous()
    out, lse = prefill(q, k, v, backend, causal=True)
    assert out[:, 0, 0].tolist() == pytest.approx([4.5, 13.0])
    assert lse[:, 0].tolist() == pytest.approx([1.0, math.log2(3)])


@backends
def test_a_window_of_the_whole_sequence_is_no_window_for_one_query(backend: str) -> None:
    """aiter#2170: two layers disagreed about which kernel serves a window >= kv_len with one query."""
    for window in (8, 9, 100):
        wide, cache = planned_decode([9, 3], backend, window_left=window)
        none, _ = planned_decode([9, 3], backend)
        q = rand(2, 4, 16)
        assert_state_close(wide.run(q, cache, return_lse=True), none.run(q, cache, return_lse=True))


@backends
def test_planning_again_replaces_everything(backend: str) -> None:
    """rtp-llm#1084: a replay used the metadata of an earlier plan."""
    wrapper, cache = planned_decode([9, 3], backend)
    q = rand(3, 4, 16)
    wrapper.run(q[:2], cache)
    keys = [rand(n, 2, 16, seed=50 + n) for n in (2, 13, 6)]
    pages = put(keys, keys, 4)
    wrapper.plan(*pages.table, 4, 2, 16, 4, q_data_type="float32")
    result = wrapper.run(q, pages.cache, return_lse=True)
    assert_matches(result, oracle.batch(q, [0, 1, 2, 3], keys, keys, oracle.Rules(0.25)), torch.float32)
