"""Public bug reports as small tests: head counts and sizes, memory layouts, scales, workspace, same bits."""

from __future__ import annotations

import inspect
import mmap
import sys

import pytest
import torch
from tests.rocade.paged import BACKENDS, assert_matches, indptr, int32, put, rand, workspace

import rocade
from rocade import cascade
from rocade.conformance import oracle

MAP_NORESERVE = 0x4000  # Linux; the mmap module has no name for it
backends = pytest.mark.parametrize("backend", BACKENDS)


@backends
def test_decode_of_a_large_batch_shape_returns(backend: str) -> None:
    """flashinfer#600: decode never returned for batch 2, kv 512, 64/8 heads, D 128, page 32, bf16."""
    keys = [rand(512, 8, 128, seed=b, dtype=torch.bfloat16) for b in (1, 2)]
    pages, q = put(keys, keys, 32), rand(2, 64, 128, dtype=torch.bfloat16)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(*pages.table, 64, 8, 128, 32, q_data_type="bfloat16")
    result = wrapper.run(q, pages.cache, return_lse=True)
    ref = oracle.batch(q, [0, 1, 2], keys, keys, oracle.Rules(128**-0.5))
    assert_matches(result, ref, torch.bfloat16)


@backends
@pytest.mark.parametrize("heads", [(64, 4), (24, 4), (28, 4), (40, 8), (64, 1)])
def test_any_integer_group_size(backend: str, heads: tuple[int, int]) -> None:
    """flashinfer#996, #2684, #3563: only group sizes 1, 2, 3, 4 and 8 worked."""
    qo, kv = heads
    keys = [rand(n, kv, 128, seed=n, dtype=torch.float16) for n in (19, 33)]
    pages, q = put(keys, keys, 16), rand(2, qo, 128, dtype=torch.float16)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(*pages.table, qo, kv, 128, 16, q_data_type="float16")
    result = wrapper.run(q, pages.cache, return_lse=True)
    ref = oracle.batch(q, [0, 1, 2], keys, keys, oracle.Rules(128**-0.5))
    assert_matches(result, ref, torch.float16)


@pytest.mark.parametrize("dim", [32, 56, 224, 512, 576])
def test_unusual_head_sizes_are_served_by_some_backend(dim: int) -> None:
    """flashinfer#528 (224), #790 (56), #1048 (32), #1043 (576), aiter#4570 (512): gaps and asserts."""
    q, k = rand(3, 4, dim, dtype=torch.float16), rand(17, 2, dim, seed=1, dtype=torch.float16)
    result = rocade.single_prefill_with_kv_cache(q, k, k, causal=True, return_lse=True)
    assert_matches(result, oracle.attend(q, k, k, oracle.Rules(dim**-0.5, causal=True)), torch.float16)


def test_auto_finds_a_backend_for_a_custom_mask() -> None:
    """flashinfer#1981: auto chose a backend without custom masks and failed."""
    q, k = rand(4, 4, 64, dtype=torch.float16), rand(9, 2, 64, seed=1, dtype=torch.float16)
    mask = torch.ones(4, 9, dtype=torch.bool)
    mask[:, ::2] = False
    result = rocade.single_prefill_with_kv_cache(q, k, k, custom_mask=mask, return_lse=True)
    assert_matches(result, oracle.attend(q, k, k, oracle.Rules(0.125), mask), torch.float16)


@backends
def test_ragged_prefill_applies_k_and_v_scales(backend: str) -> None:
    """flashinfer#4979: k_scale 0.25 and v_scale 0.5 were ignored; the output was 7.5 times too large."""
    q, k, v = rand(4, 4, 16), rand(9, 2, 16, seed=1), rand(9, 2, 16, seed=2)
    wrapper = rocade.BatchPrefillWithRaggedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(indptr([4]), indptr([9]), 4, 2, 16, q_data_type="float32")
    result = wrapper.run(q, k, v, k_scale=0.25, v_scale=0.5, return_lse=True)
    rules = oracle.Rules(0.25 * 0.25, v_scale=0.5)
    assert_matches(result, oracle.attend(q, k, v, rules), torch.float32)


@backends
def test_paged_prefill_applies_k_and_v_scales(backend: str) -> None:
    """flashinfer#1023: ignored with 64/16 heads, D 128, page 1, 128 pages, 100 queries."""
    q = rand(100, 64, 128, dtype=torch.float16)
    k, v = (rand(128, 16, 128, seed=i, dtype=torch.float16) for i in (1, 2))
    pages = put([k], [v], 1)
    wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(indptr([100]), *pages.table, 64, 16, 128, 1, q_data_type="float16")
    scales = {"k_scale": torch.tensor(0.25), "v_scale": 0.5}  # a number and a 0-d tensor are the same
    result = wrapper.run(q, pages.cache, return_lse=True, **scales)
    rules = oracle.Rules(0.25 * 128**-0.5, v_scale=0.5)
    assert_matches(result, oracle.attend(q, k, v, rules), torch.float16)


@backends
def test_scales_of_one_change_no_bit(backend: str) -> None:
    """vllm#37054: scales reached a bf16 cache; 1.0 has to be neutral."""
    keys = [rand(n, 2, 64, seed=n, dtype=torch.bfloat16) for n in (33, 7)]
    pages, q = put(keys, keys, 16), rand(2, 8, 64, dtype=torch.bfloat16)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(*pages.table, 8, 2, 64, 16, q_data_type="bfloat16")
    plain = wrapper.run(q, pages.cache, return_lse=True)
    scaled = wrapper.run(q, pages.cache, q_scale=1.0, k_scale=1.0, v_scale=1.0, return_lse=True)
    assert plain[0].equal(scaled[0])
    assert plain[1].equal(scaled[1])


def sparse_pool(pages: int, page_stride: int, page_size: int) -> torch.Tensor:
    """An fp16 NHD cache `[pages, page_size, 1, 16]` with a huge page stride; only touched pages exist."""
    count = (pages - 1) * page_stride + page_size * 16
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, 2 * count, flags=flags)
    flat = torch.frombuffer(memory, dtype=torch.float16)
    return flat.as_strided((pages, page_size, 1, 16), (page_stride, 16, 16, 1))


@backends
@pytest.mark.skipif(sys.platform != "linux", reason="needs memory that is reserved only when it is touched")
@pytest.mark.parametrize(
    ("pages", "stride"),
    [(140_000, 16_384), (3, 2**31 + 64), (3000, 1_040_000)],
    ids=["many pages", "one stride beyond 2^31", "packed layers"],
)
def test_offsets_into_a_cache_have_64_bits(backend: str, pages: int, stride: int) -> None:
    """flashinfer#3136, vllm#50427, b12x#45: page times stride wrapped in 32 bits and read another page."""
    cache = (sparse_pool(pages, stride, 4), sparse_pool(pages, stride, 4))
    k, v = rand(6, 1, 16, dtype=torch.float16), rand(6, 1, 16, seed=1, dtype=torch.float16)
    last = int32([pages - 1, pages - 2])
    where = (int32([0] * 6), int32(range(6)))
    rocade.append_paged_kv_cache(k, v, *where, cache, last, int32([0, 2]), int32([2]), backend=backend)
    assert cache[0][pages - 1].equal(k[:4])
    q = rand(1, 2, 16, dtype=torch.float16)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(int32([0, 2]), last, int32([2]), 2, 1, 16, 4, q_data_type="float16")
    result = wrapper.run(q, cache, return_lse=True)
    assert_matches(result, oracle.attend(q, k, v, oracle.Rules(0.25)), torch.float16)


@backends
def test_append_writes_into_a_strided_cache(backend: str) -> None:
    """flashinfer#527: a cache that is a slice of a larger one was written as if it were contiguous."""
    base = torch.zeros(5, 3, 2, 4, 2, 16)  # [pages, layers, K and V, page, heads, dim]
    layer = base[:, 1]
    rows = rand(3, 2, 16)
    where = (int32([0, 0, 0]), int32([2, 3, 4]))
    rocade.append_paged_kv_cache(
        rows, -rows, *where, layer, int32([3, 0]), int32([0, 2]), int32([1]), backend=backend
    )
    assert layer[3, 0, 2:].equal(rows[:2])
    assert layer[0, 1, 0].equal(-rows[2])
    assert base[:, [0, 2]].eq(0).all()
    assert layer.count_nonzero() == 2 * rows.count_nonzero()


@backends
def test_queries_may_be_a_slice_of_fused_qkv(backend: str) -> None:
    """vllm#47908, flashinfer#311: only the last dimension may be asked to be contiguous."""
    fused = rand(6, 8, 64)
    q, k, v = fused[:, :4], fused[:, 4:6], fused[:, 6:]
    result = rocade.single_prefill_with_kv_cache(q, k, v, causal=True, backend=backend, return_lse=True)
    assert_matches(result, oracle.attend(q, k, v, oracle.Rules(0.125, causal=True)), torch.float32)


@backends
def test_a_small_workspace_costs_no_wrong_answer(backend: str) -> None:
    """vllm#25342 and others: 64/4 heads overflowed a fixed workspace. The need can be asked for."""
    keys = [rand(600, 4, 64, seed=b) for b in range(2)]
    pages, q = put(keys, keys, 16), rand(2, 64, 64)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(torch.empty(16, dtype=torch.uint8), backend=backend)
    args = (*pages.table, 64, 4, 64, 16)
    needed = wrapper.workspace_size(*args, q_data_type="float32")
    assert all(isinstance(size, int) and size >= 0 for size in needed)
    wrapper.plan(*args, q_data_type="float32")
    result = wrapper.run(q, pages.cache, return_lse=True)
    assert_matches(result, oracle.batch(q, [0, 1, 2], keys, keys, oracle.Rules(0.125)), torch.float32)


@backends
def test_the_same_call_gives_the_same_bits(backend: str) -> None:
    """sglang#24853: output varied from run to run with shared prefixes."""
    keys = [rand(n, 2, 64, seed=n) for n in (300, 7, 90)]
    pages, q = put(keys, keys, 16), rand(3, 8, 64)
    seen = []
    for _ in range(8):
        wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
        wrapper.plan(*pages.table, 8, 2, 64, 16, q_data_type="float32")
        seen.append(wrapper.run(q, pages.cache, return_lse=True))
    assert all(out.equal(seen[0][0]) and lse.equal(seen[0][1]) for out, lse in seen)


@backends
def test_a_fixed_split_makes_results_independent_of_the_batch(backend: str) -> None:
    """sglang#24853: a request's bits changed with the traffic beside it."""
    keys = [rand(n, 2, 64, seed=n) for n in (300, 7, 90, 260)]
    q = rand(4, 8, 64)

    def decode(which: list[int]) -> torch.Tensor:
        chosen = [keys[b] for b in which]
        pages = put(chosen, chosen, 16)
        wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
        wrapper.plan(*pages.table, 8, 2, 64, 16, q_data_type="float32", fixed_split_size=4)
        return wrapper.run(q[which], pages.cache)

    together = decode([0, 1, 2, 3])
    for b in range(4):
        assert decode([b])[0].equal(together[b])


def test_append_keeps_flashinfers_keywords() -> None:
    """sarathi#56: the signature of append changed under its callers."""
    names = list(inspect.signature(rocade.append_paged_kv_cache).parameters)
    assert names[:9] == [
        "append_key",
        "append_value",
        "batch_indices",
        "positions",
        "paged_kv_cache",
        "kv_indices",
        "kv_indptr",
        "kv_last_page_len",
        "kv_layout",
    ]


@backends
def test_a_run_is_one_op_to_the_compiler(backend: str) -> None:
    """flashinfer#2733: fullgraph=True failed, since the ops were no ops to torch."""
    keys = [rand(n, 2, 16, seed=n) for n in (9, 3)]
    pages, q = put(keys, keys, 4), rand(2, 4, 16)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace(), backend=backend)
    wrapper.plan(*pages.table, 4, 2, 16, 4, q_data_type="float32")
    compiled = torch.compile(lambda x: wrapper.run(x, pages.cache) + 1, fullgraph=True, backend="eager")
    assert compiled(q).equal(wrapper.run(q, pages.cache) + 1)


@backends
def test_the_in_place_merge_has_a_functional_twin(backend: str) -> None:
    """flashinfer#403: the in-place op kept a graph from being captured."""
    v, other = rand(6, 2, 16), rand(6, 2, 16, seed=1)
    s, s_other = rand(6, 2, seed=2), rand(6, 2, seed=3)
    mask = torch.tensor([1, 0, 1, 1, 0, 0], dtype=torch.bool)
    twin = cascade.merge_state(v, s, other, s_other, mask=mask, backend=backend)
    kept = v.clone()
    cascade.merge_state_in_place(v, s, other, s_other, mask, backend=backend)
    assert twin[0].equal(v)
    assert twin[1].equal(s)
    assert v[~mask].equal(kept[~mask])


@pytest.mark.parametrize(("q_len", "group"), [(2, 8), (3, 8), (4, 1)])
def test_fp8_paged_decode_of_several_tokens(q_len: int, group: int) -> None:
    """aiter#181, #2364: fp8 paged decode had one query token and no group size 8."""
    keys = [rand(n, 2, 64, seed=n).to(torch.float8_e4m3fn).float() for n in (9, 4)]
    pages = put(keys, keys, 4)
    cache = tuple(c.to(torch.float8_e4m3fn) for c in pages.cache)
    q = rand(2 * q_len, 2 * group, 64, dtype=torch.bfloat16)
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace())
    dtypes = {"q_data_type": "bfloat16", "kv_data_type": torch.float8_e4m3fn}
    wrapper.plan(*pages.table, 2 * group, 2, 64, 4, q_len_per_req=q_len, **dtypes)
    ref = oracle.batch(q, [0, q_len, 2 * q_len], keys, keys, oracle.Rules(0.125, causal=True))
    assert_matches(wrapper.run(q, cache, return_lse=True), ref, torch.bfloat16)
