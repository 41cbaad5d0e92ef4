"""The calls that vLLM makes, argument for argument, as small runs compared with a plain softmax."""

from __future__ import annotations

import pytest
import torch
from tests.rocade import paged
from tests.rocade.engines import HKV, HQ, D, Engine, plain, workspace
from tests.rocade.paged import int32

import rocade as flashinfer

NAN = float("nan")
LAYOUTS = ["NHD", "HND"]


def vllm_cache(engine: Engine, layout: str) -> torch.Tensor:
    """A permuted view, as vLLM hands it over: NHD over HND memory, or HND over NHD memory."""
    memory = engine.pool.permute(0, 1, 3, 2, 4)
    return memory if layout == "HND" else memory.contiguous().permute(0, 1, 3, 2, 4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vllm_prefill(layout: str) -> None:
    decodes, engine = 2, Engine([3, 5], [20, 33], 16)
    indptr, indices, last = engine.pages.table
    # The batch starts with decode requests, so the page table of the prefills does not start at 0.
    kv_indptr = indptr + decodes
    kv_indices = torch.cat([int32([0] * decodes), indices])
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(), layout)
    wrapper.plan(
        engine.qo_indptr,
        kv_indptr,
        kv_indices,
        last,
        HQ,
        HKV,
        D,
        16,
        causal=True,
        sm_scale=0.3,
        window_left=9,
        logits_soft_cap=30.0,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
        fixed_split_size=-1,
        disable_split_kv=False,
    )
    assert wrapper._causal
    assert wrapper._window_left == 9
    assert wrapper._logits_soft_cap == 30.0
    assert wrapper._sm_scale == 0.3
    output = torch.full((decodes + 8, HQ, D), NAN, dtype=torch.bfloat16)
    wrapper.run(engine.q, vllm_cache(engine, layout), k_scale=1.0, v_scale=1.0, out=output[decodes:])
    engine.check(output[decodes:], scale=0.3, window=9, cap=30.0)
    assert output[:decodes].isnan().all()


def vllm_decode_plan(wrapper: flashinfer.BatchDecodeWithPagedKVCacheWrapper, engine: Engine) -> None:
    """The call with 21 positional arguments, of a time before o_data_type."""
    tail = ("NONE", -1, 0.0, engine.dtype, engine.dtype, None, 0.3, None, None, True, None, None, None, False)
    given = (*engine.pages.table, HQ, HKV, D, engine.page, *tail)
    assert len(given) == 21
    wrapper.plan(*given)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vllm_decode_with_21_positional_arguments(layout: str) -> None:
    engine = Engine([1, 1, 1], [20, 33, 1], 16)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), layout, use_tensor_cores=True)
    vllm_decode_plan(wrapper, engine)
    assert wrapper._window_left == -1
    assert wrapper._logits_soft_cap == 0.0
    assert wrapper._sm_scale == 0.3
    output = torch.empty_like(engine.q)
    wrapper.run(engine.q, vllm_cache(engine, layout), k_scale=0.5, v_scale=2.0, out=output)
    engine.check(output, scale=0.3, k_scale=0.5, v_scale=2.0)


def test_vllm_decode_in_graph_mode_plans_through_private_names() -> None:
    first, second = Engine([1, 1], [20, 33], 16), Engine([1, 1], [48, 7], 16)
    indptr_buffer, indices_buffer, last_buffer = int32([0] * 9), int32([0] * 64), int32([0] * 8)
    buffers = {
        "paged_kv_indptr_buffer": indptr_buffer[:3],
        "paged_kv_indices_buffer": indices_buffer,
        "paged_kv_last_page_len_buffer": last_buffer[:2],
    }
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace(), "NHD", use_cuda_graph=True, use_tensor_cores=True, **buffers
    )
    vllm_decode_plan(wrapper, first)
    first.check(wrapper.run(first.q, first.pool), scale=0.3)
    # From the second step on: the engine fills the buffers and calls the module underneath with 18 arguments.
    indptr, indices, last = second.pages.table
    assert wrapper.is_cuda_graph_enabled
    assert wrapper._fixed_batch_size == 2
    assert len(indices) <= len(wrapper._paged_kv_indices_buf)
    indices_buffer[: len(indices)] = indices
    wrapper._paged_kv_indptr_buf.copy_(indptr, non_blocking=True)
    wrapper._paged_kv_last_page_len_buf.copy_(last, non_blocking=True)
    own = (
        wrapper._float_workspace_buffer,
        wrapper._int_workspace_buffer,
        wrapper._pin_memory_int_workspace_buffer,
        torch.arange(3, dtype=torch.int32),
    )
    sizes = (2, 2, HQ, HKV, 16, wrapper.is_cuda_graph_enabled, D, D, False, -1, -1, False)
    assert len(own) + 2 + len(sizes) == 18
    wrapper._plan_info = wrapper._cached_module.plan(*own, indptr, int32(second.keys), *sizes)
    wrapper._pos_encoding_mode = "NONE"
    wrapper._window_left = -1
    wrapper._logits_soft_cap = 0.0
    wrapper._sm_scale = 0.3
    wrapper._rope_scale = 1.0
    wrapper._rope_theta = 1e4
    second.check(wrapper.run(second.q, second.pool), scale=0.3)
    with pytest.raises(ValueError, match="kv_len: got"):
        wrapper._cached_module.plan(*own, indptr, int32([48, 17]), *sizes)


def test_vllm_workspace_is_handed_from_wrapper_to_wrapper() -> None:
    engine, shared = Engine([1], [5], 16), workspace()
    one, two = (flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace()) for _ in range(2))
    vllm_decode_plan(one, engine)
    one.reset_workspace_buffer(shared, two._int_workspace_buffer)
    engine.check(one.run(engine.q, engine.pool), scale=0.3)


def test_vllm_cascade() -> None:
    dtype, prefix, rows = torch.bfloat16, 32, [2, 3]
    engine = Engine(rows, [32, 20, 9], 16, dtype)
    indptr, indices, last = engine.pages.table
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, workspace(), "NHD")
    wrapper.plan(
        [int32([0, 5]), paged.indptr(rows)],
        [int32([0, 2]), indptr[1:]],
        [indices, indices],
        [int32([16]), last[1:]],
        HQ,
        HKV,
        D,
        16,
        causal=True,
        sm_scale=0.3,
        window_left=-1,
        logits_soft_cap=0.0,
        q_data_type=dtype,
        kv_data_type=dtype,
    )
    out = wrapper.run(engine.q, engine.pool)
    for i, (a, b) in enumerate(((0, 2), (2, 5))):
        k, v = (torch.cat([t[0][:prefix], t[i + 1]]) for t in (engine.k, engine.v))
        expected = plain(engine.q[a:b], k, v, scale=0.3)[0]
        torch.testing.assert_close(out[a:b].double(), expected, rtol=3e-2, atol=3e-2)
