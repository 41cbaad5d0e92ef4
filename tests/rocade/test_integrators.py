"""The calls of SGLang, TensorRT-LLM, TGI and LoRAX, argument for argument, against a plain softmax."""

from __future__ import annotations

import functools

import pytest
import torch
from tests.rocade import paged
from tests.rocade.engines import HKV, HQ, D, Engine, plain, workspace
from tests.rocade.paged import int32

import rocade as flashinfer

NAN = float("nan")
LAYOUTS = ["NHD", "HND"]


# -- SGLang: page size 1, (k, v) tuples, indptr on the device, run-time flags through forward()


def test_sglang_decode_with_fast_plan() -> None:
    engine = Engine([1, 1, 1], [7, 1, 12], 1)
    indptr, indices, last = engine.pages.table
    assert (last == 1).all()
    padded = torch.cat([last, last.new_ones(5)])
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace(),
        "NHD",
        use_cuda_graph=True,
        use_tensor_cores=True,
        paged_kv_indptr_buffer=int32([0] * 4),
        paged_kv_indices_buffer=int32([0] * 64),
        paged_kv_last_page_len_buffer=padded[:3].clone(),
    )
    common = {
        "data_type": engine.dtype,
        "q_data_type": engine.dtype,
        "non_blocking": True,
        "fixed_split_size": None,
        "disable_split_kv": False,
    }
    wrapper.begin_forward(indptr, indices, padded[:3], HQ, HKV, D, 1, **common)
    wrapper.begin_forward = functools.partial(flashinfer.fast_decode_plan, wrapper)
    wrapper.begin_forward(
        indptr, indices, padded[:3], HQ, HKV, D, 1, global_override_indptr_cpu=indptr.clone(), **common
    )
    assert wrapper._paged_kv_indices_buf[: len(indices)].tolist() == indices.tolist()
    out = wrapper.forward(
        engine.q.contiguous(), engine.pages.cache, sm_scale=0.3, logits_soft_cap=5.0, k_scale=0.5, v_scale=2.0
    )
    engine.check(out, scale=0.3, cap=5.0, k_scale=0.5, v_scale=2.0)


def test_sglang_extend_with_over_allocated_indices_and_run_time_flags() -> None:
    engine = Engine([2, 3], [7, 12], 1)
    indptr, indices, last = engine.pages.table
    spare = torch.full((256,), 2**30, dtype=torch.int32)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", backend="fa2")
    wrapper.begin_forward(
        engine.qo_indptr,
        indptr,
        torch.cat([indices, spare]),
        last,
        HQ,
        HKV,
        D,
        1,
        q_data_type=engine.dtype,
        kv_data_type=engine.dtype,
        custom_mask=None,
        non_blocking=True,
        fixed_split_size=None,
        prefix_len_ptr=None,
        token_pos_in_items_ptr=None,
        token_pos_in_items_len=0,
        max_item_len_ptr=None,
    )
    for window, cap in ((-1, 0.0), (4, 5.0), (-1, 0.0)):  # layers alternate
        out = wrapper.forward(
            engine.q,
            engine.pages.cache,
            causal=True,
            sm_scale=0.3,
            window_left=window,
            logits_soft_cap=cap,
            k_scale=1.0,
            v_scale=1.0,
        )
        engine.check(out, scale=0.3, window=window, cap=cap)


def test_sglang_ragged_and_paged_parts_are_merged() -> None:
    """The new tokens attend to themselves through the ragged wrapper, to the prefix through the paged one."""
    new, prefix = [2, 3], [7, 12]
    engine = Engine(new, prefix, 1, torch.float32)
    k, v = paged.rand(5, HKV, D, seed=91), paged.rand(5, HKV, D, seed=92)
    ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(), "NHD")
    ragged.begin_forward(engine.qo_indptr, engine.qo_indptr, HQ, HKV, D, q_data_type=engine.dtype)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD")
    wrapper.begin_forward(engine.qo_indptr, *engine.pages.table, HQ, HKV, D, 1, q_data_type=engine.dtype)
    o1, s1 = ragged.forward_return_lse(engine.q, k, v, causal=True, sm_scale=0.3, logits_soft_cap=9.0)
    o2, s2 = wrapper.forward_return_lse(
        engine.q, engine.pages.cache, causal=False, sm_scale=0.3, logits_soft_cap=9.0
    )
    out, _ = flashinfer.cascade.merge_state(o1, s1, o2, s2)
    for i, (a, b) in enumerate(((0, 2), (2, 5))):
        whole = [torch.cat([old[i], fresh[a:b]]) for old, fresh in ((engine.k, k), (engine.v, v))]
        expected = plain(engine.q[a:b], *whole, scale=0.3, cap=9.0)[0]
        torch.testing.assert_close(out[a:b].double(), expected, rtol=1e-5, atol=1e-5)


def test_sglang_speculative_mask_is_flat_uint8() -> None:
    engine = Engine([3], [8], 1, torch.float32)
    mask = torch.rand(3, 8, generator=torch.Generator().manual_seed(0)) > 0.3
    mask[:, 0] = True
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD")
    wrapper.begin_forward(
        engine.qo_indptr,
        *engine.pages.table,
        HQ,
        HKV,
        D,
        1,
        custom_mask=mask.flatten().to(torch.uint8),
        q_data_type=torch.float32,
    )
    out = wrapper.forward(engine.q, engine.pages.cache, causal=False)
    k, v = (t[0].repeat_interleave(HQ // HKV, 1).transpose(0, 1) for t in (engine.k, engine.v))
    expected = torch.nn.functional.scaled_dot_product_attention(engine.q.transpose(0, 1), k, v, mask)
    torch.testing.assert_close(out, expected.transpose(0, 1), rtol=1e-5, atol=1e-5)


# -- TensorRT-LLM: buffers without graph mode, one 5-D cache, append by keyword


def appended(engine: Engine) -> torch.Tensor:
    """The pool after each request's newest tokens were appended to what had only the others."""
    indptr, indices, last = engine.pages.table
    cache = torch.nan_to_num(engine.pool)
    for b, n in enumerate(engine.rows):
        for position in range(engine.keys[b] - n, engine.keys[b]):
            cache[indices[indptr[b] + position // 4], :, position % 4] = 0
    seq_lens = flashinfer.get_seq_lens(indptr, last, 4)
    assert seq_lens.tolist() == engine.keys
    batch_indices, positions = flashinfer.get_batch_indices_positions(engine.qo_indptr, seq_lens, 5)
    flashinfer.page.append_paged_kv_cache(
        append_key=torch.cat([k[-n:] for k, n in zip(engine.k, engine.rows, strict=True)]),
        append_value=torch.cat([v[-n:] for v, n in zip(engine.v, engine.rows, strict=True)]),
        batch_indices=batch_indices,
        positions=positions,
        paged_kv_cache=cache,
        kv_indices=indices,
        kv_indptr=indptr,
        kv_last_page_len=last,
        kv_layout="NHD",
    )
    return cache


def test_tensorrt_llm_append_then_prefill() -> None:
    engine = Engine([3, 2], [9, 6], 4, torch.float16)
    indptr, indices, last = engine.pages.table
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        workspace(),
        "NHD",
        backend="fa2",
        qo_indptr_buf=int32([0] * 9),
        paged_kv_indptr_buf=int32([0] * 9),
        paged_kv_indices_buf=int32([0] * 64),
        paged_kv_last_page_len_buf=int32([0] * 8),
        use_cuda_graph=False,
    )
    wrapper.plan(
        engine.qo_indptr,
        indptr,
        indices,
        last,
        HQ,
        HKV,
        D,
        4,
        causal=True,
        q_data_type=torch.float16,
        kv_data_type=torch.float16,
    )
    engine.check(wrapper.run(engine.q, appended(engine)))


# -- TGI and LoRAX: keywords throughout, old names, dtypes as text


@pytest.mark.parametrize("dtype", [torch.float16, "float16"])
def test_tgi_prefill_keywords(dtype: torch.dtype | str) -> None:
    engine = Engine([3, 2], [9, 6], 4, torch.float16)
    indptr, indices, last = engine.pages.table
    prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        workspace(), kv_layout="NHD", use_cuda_graph=False
    )
    prefill.plan(
        qo_indptr=engine.qo_indptr,
        paged_kv_indptr=indptr,
        paged_kv_indices=indices,
        paged_kv_last_page_len=last,
        custom_mask=None,
        num_qo_heads=HQ,
        num_kv_heads=HKV,
        head_dim_qk=D,
        kv_data_type=dtype,
        q_data_type=dtype,
        page_size=4,
        window_left=3,
    )
    out = prefill.forward(
        engine.q,
        paged_kv_cache=engine.pages.cache,
        logits_soft_cap=20.0,
        sm_scale=0.3,
        causal=True,
        window_left=3,
    )
    engine.check(out, scale=0.3, cap=20.0, window=3)


@pytest.mark.parametrize("dtype", [torch.float16, "float16"])
def test_tgi_decode_keywords(dtype: torch.dtype | str) -> None:
    steps = Engine([1, 1], [9, 6], 4, torch.float16)
    indptr, indices, last = steps.pages.table
    decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace(), kv_layout="NHD", use_tensor_cores=False
    )
    decode.plan(
        indptr=indptr,
        indices=indices,
        last_page_len=last,
        num_qo_heads=HQ,
        num_kv_heads=HKV,
        head_dim=D,
        page_size=4,
        data_type=dtype,
        q_data_type=dtype,
        window_left=-1,
    )
    steps.check(
        decode.forward(steps.q.contiguous(), paged_kv_cache=steps.pages.cache, sm_scale=0.3), scale=0.3
    )


def test_lorax_old_names() -> None:
    engine = Engine([3, 2], [9, 6], 4, torch.float16)
    indptr, indices, last = engine.pages.table
    prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        workspace(), kv_layout="NHD", use_cuda_graph=False
    )
    prefill.begin_forward(
        qo_indptr=engine.qo_indptr,
        paged_kv_indptr=indptr,
        paged_kv_indices=indices,
        paged_kv_last_page_len=last,
        num_qo_heads=HQ,
        num_kv_heads=HKV,
        head_dim=D,
        q_data_type="float16",
        page_size=4,
    )
    engine.check(prefill.forward(engine.q, engine.pages.cache, causal=True, sm_scale=0.3), scale=0.3)
    prefill.end_forward()
    decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), "NHD")
    steps = Engine([1, 1], [9, 6], 4, torch.float16)
    decode.begin_forward(*steps.pages.table, HQ, HKV, D, 4, data_type="float16", q_data_type="float16")
    steps.check(decode.forward(steps.q, steps.pages.cache, sm_scale=0.3), scale=0.3)
    decode.end_forward()


# -- what all of them rely on


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cache_view_with_a_huge_page_stride(layout: str) -> None:
    """One layer of a pool that interleaves many layers: strides far beyond the view's own size."""
    engine = Engine([1, 1], [9, 6], 4, torch.float32)
    pool = engine.pool
    wide = torch.full((pool.shape[0], 37, *pool.shape[1:]), NAN)
    wide[:, 20] = pool
    view = wide[:, 20] if layout == "NHD" else wide[:, 20].permute(0, 1, 3, 2, 4)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), layout)
    wrapper.plan(*engine.pages.table, HQ, HKV, D, 4, q_data_type=torch.float32)
    engine.check(wrapper.run(engine.q, view))


def test_scales_may_be_zero_dimensional_tensors_or_floats() -> None:
    engine = Engine([1, 1], [9, 6], 4, torch.float32)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    wrapper.plan(*engine.pages.table, HQ, HKV, D, 4, q_data_type=torch.float32)
    out = wrapper.run(engine.q, engine.pool, k_scale=torch.tensor(0.25), v_scale=torch.tensor(0.5))
    engine.check(out, k_scale=0.25, v_scale=0.5)
    assert torch.equal(out, wrapper.run(engine.q, engine.pool, k_scale=0.25, v_scale=0.5))
