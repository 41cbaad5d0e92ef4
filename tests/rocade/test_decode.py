"""Decode wrappers against the oracle, and what is theirs alone: positional options, drafts, planning."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from tests.rocade import paged
from tests.rocade.batches import DIM, HEADS, KV_HEADS, PAGE, SIZES, Batch, workspace
from tests.rocade.paged import int32

import rocade
from rocade._decode_arguments import OLD_ORDER, ORDER, named

Decode = rocade.BatchDecodeWithPagedKVCacheWrapper
FP32 = {"q_data_type": "float32"}
NAN = float("nan")


def planned(batch: Batch, wrapper: Decode | None = None, **options: Any) -> Decode:
    wrapper = wrapper or Decode(workspace())
    wrapper.plan(*batch.pages.table, *SIZES, PAGE, **{**FP32, **options})
    return wrapper


@pytest.fixture
def batch() -> Batch:
    """Four requests of one query token; the second has no keys."""
    return Batch([1, 1, 1, 1], [9, 0, 1, 4])


OPTIONS = [
    ({}, {}),
    ({"window_left": 2}, {"window_left": 2}),
    ({"window_left": 0}, {"window_left": 0}),
    ({"logits_soft_cap": 2.0, "sm_scale": 0.5}, {"soft_cap": 2.0, "scale": 0.5}),
    ({"pos_encoding_mode": "ALIBI"}, {"pos_encoding": "ALIBI"}),
    (
        {"pos_encoding_mode": "ROPE_LLAMA", "rope_theta": 1e3},
        {"pos_encoding": "ROPE_LLAMA", "rope_theta": 1e3},
    ),
]


@pytest.mark.parametrize(("options", "rules"), OPTIONS)
def test_batch_matches_the_oracle(batch: Batch, options: dict[str, Any], rules: dict[str, Any]) -> None:
    wrapper = planned(batch, **options)
    batch.check(wrapper.run(batch.q, batch.pages.cache, return_lse=True), **rules)
    batch.check(wrapper.run(batch.q, batch.fused, return_lse=True), **rules)


@pytest.mark.parametrize(("options", "rules"), OPTIONS)
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_single_matches_the_oracle(layout: str, options: dict[str, Any], rules: dict[str, Any]) -> None:
    batch = Batch([1], [9])
    k, v = batch.k[0], batch.v[0]
    if layout == "HND":
        k, v = k.transpose(0, 1).contiguous(), v.transpose(0, 1).contiguous()
    out, lse = rocade.single_decode_with_kv_cache(
        batch.q[0], k, v, layout, use_tensor_cores=True, return_lse=True, **options
    )
    assert (out.shape, lse.shape) == ((HEADS, DIM), (HEADS,))
    batch.check((out[None], lse[None]), **rules)
    assert torch.equal(rocade.single_decode_with_kv_cache(batch.q[0], k, v, layout, **options), out)


def test_single_scales() -> None:
    batch = Batch([1], [9])
    result = rocade.single_decode_with_kv_cache(
        batch.q[0],
        batch.k[0],
        batch.v[0],
        q_scale=0.5,
        k_scale=torch.tensor(3.0),
        v_scale=0.25,
        return_lse=True,
    )
    batch.check((result[0][None], result[1][None]), scale=1.5 * DIM**-0.5, v_scale=0.25)


@pytest.mark.parametrize("q_len", [2, 3])
def test_several_tokens_a_request_are_causal_among_themselves(q_len: int) -> None:
    batch = Batch([q_len] * 3, [9, 3, 5])
    wrapper = planned(batch, q_len_per_req=q_len)
    batch.check(wrapper.run(batch.q, batch.fused, q_len_per_req=q_len, return_lse=True), causal=True)
    with pytest.raises(ValueError, match=f"q_len_per_req: got 1, expected None or {q_len}"):
        wrapper.run(batch.q, batch.fused, q_len_per_req=1)


def test_query_tokens_must_be_in_the_cache_unless_the_request_is_padding() -> None:
    batch = Batch([3, 3], [2, 5])
    with pytest.raises(
        ValueError, match=r"indptr: got request 0 of 2 tokens, expected at least q_len_per_req \(3\)"
    ):
        planned(batch, q_len_per_req=3)
    padding = Batch([3, 3], [0, 5])
    wrapper = planned(padding, q_len_per_req=3)
    padding.check(wrapper.run(padding.q, padding.fused, return_lse=True), causal=True)
    with pytest.raises(ValueError, match="q_len_per_req: got 0"):
        planned(padding, q_len_per_req=0)


@pytest.mark.parametrize("group", [(6, 1), (7, 1), (16, 1), (5, 5)])
def test_any_group_size(group: tuple[int, int]) -> None:
    heads, kv_heads = group
    q, k = paged.rand(1, heads, DIM), paged.rand(9, kv_heads, DIM, seed=1)
    pages = paged.put([k], [k], PAGE)
    wrapper = Decode(workspace(), use_tensor_cores=True)
    wrapper.plan(*pages.table, heads, kv_heads, DIM, PAGE, **FP32)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(0, 1), *(k.repeat_interleave(heads // kv_heads, 1).transpose(0, 1),) * 2
    )
    torch.testing.assert_close(wrapper.run(q, pages.cache), expected.transpose(0, 1))


def test_results_scales_and_window_at_run(batch: Batch) -> None:
    wrapper = planned(batch, window_left=3)
    out, lse = torch.full((4, HEADS, DIM), NAN), torch.full((4, HEADS), NAN)
    scales = {"q_scale": 2.0, "k_scale": 0.25, "v_scale": torch.tensor(4.0)}
    got = wrapper.run(batch.q, batch.fused, out=out, lse=lse, window_left=3, enable_pdl=False, **scales)
    assert got is out
    batch.check((out, lse), scale=0.5 * DIM**-0.5, v_scale=4.0, window_left=3)
    with pytest.raises(ValueError, match="window_left: got -1, expected None or 3"):
        wrapper.run(batch.q, batch.fused, window_left=-1)


@pytest.mark.parametrize("name", ["sinks", "kv_cache_sf", "skip_softmax_threshold_scale_factor"])
def test_refused_run_arguments_are_named(batch: Batch, name: str) -> None:
    with pytest.raises(NotImplementedError, match=name):
        planned(batch).run(batch.q, batch.fused, **{name: torch.zeros(1)})
    with pytest.raises(NotImplementedError, match="args"):
        planned(batch).run(batch.q, batch.fused, None)


@pytest.mark.parametrize(
    ("options", "error", "named_"),
    [
        ({"window_right": 1}, NotImplementedError, "window_right"),
        ({"window_right": -1}, NotImplementedError, "window_right"),
        ({"block_tables": int32([0])}, NotImplementedError, "block_tables"),
        ({"nonsense": 1}, TypeError, "unexpected keyword argument 'nonsense'"),
        ({"seq_lens": int32([9, 0, 1, 5])}, ValueError, r"seq_lens\[3\]"),
        ({"kv_data_type": "int8"}, ValueError, "kv_data_type"),
    ],
)
def test_refused_and_malformed_plan_arguments_are_named(
    batch: Batch, options: dict[str, Any], error: type[Exception], named_: str
) -> None:
    with pytest.raises(error, match=named_):
        planned(batch, **options)


def test_plan_arrays_go_by_their_own_names(batch: Batch) -> None:
    indptr, indices, last = batch.pages.table
    for table, named_ in (
        ((indptr.flip(0), indices, last), r"^indptr\["),
        ((indptr, indices[:-1], last), "^indices: got 4 page indices, expected at least 5"),
        ((indptr, indices, last + 4), r"^last_page_len\[0\]"),
    ):
        with pytest.raises(ValueError, match=named_):
            Decode(workspace()).plan(*table, *SIZES, PAGE, **FP32)
    wrapper = planned(batch)
    with pytest.raises(ValueError, match="paged_kv_cache: got 2 pages"):
        wrapper.run(batch.q, batch.fused[:2])


def test_data_type_stands_for_what_is_none(batch: Batch) -> None:
    wrapper = planned(batch, q_data_type=None, data_type=torch.bfloat16)
    assert wrapper._plan.request.q_dtype == wrapper._plan.request.kv_dtype == "bf16"  # type: ignore[union-attr]
    planned(batch, wrapper, q_data_type="float32", data_type="float16")
    assert (wrapper._plan.request.q_dtype, wrapper._plan.request.kv_dtype) == ("fp32", "fp16")  # type: ignore[union-attr]
    planned(batch, wrapper, q_data_type=None)
    assert wrapper._plan.request.q_dtype == "fp16"  # type: ignore[union-attr]


def test_positional_options_in_both_orders() -> None:
    old = ("NONE", 5, 30.0, "float16", "bfloat16", None, 0.5, 2.0, 1e5, False, None, None, 8, True)
    new = (*old[:5], "float32", *old[5:], 3)
    assert len(old) == len(OLD_ORDER)
    assert len(new) == len(ORDER)
    for tail, o_dtype, q_len in ((old, None, 1), (new, "float32", 3)):
        options = named(tail, {})
        assert options == {
            "pos_encoding_mode": "NONE",
            "window_left": 5,
            "window_right": 0,
            "logits_soft_cap": 30.0,
            "q_data_type": "float16",
            "kv_data_type": "bfloat16",
            "o_data_type": o_dtype,
            "data_type": None,
            "sm_scale": 0.5,
            "rope_scale": 2.0,
            "rope_theta": 1e5,
            "non_blocking": False,
            "block_tables": None,
            "seq_lens": None,
            "fixed_split_size": 8,
            "disable_split_kv": True,
            "q_len_per_req": q_len,
        }


def test_a_tail_without_scale_is_told_apart_by_its_flags() -> None:
    nothing = ("NONE", -1, None, "float16", None, None)
    assert named((*nothing, None, None, None, True), {})["non_blocking"] is True  # without o_data_type
    assert named((*nothing, None, None, None, None, True), {})["non_blocking"] is True  # with it
    assert named((*nothing, None, None), {}) == named((), {})  # both readings say the same


def test_a_tail_that_has_two_readings_is_refused() -> None:
    for tail in (
        ("NONE", -1, None, "float16", None, "float32"),  # o_data_type or data_type?
        ("NONE", -1, None, "float16", None, None, None, 0.5),  # sm_scale or rope_scale?
    ):
        with pytest.raises(TypeError, match="with or without o_data_type; pass them by keyword"):
            named(tail, {})


@pytest.mark.parametrize(
    ("tail", "kwargs", "named_"),
    [
        (("NONE",), {"pos_encoding_mode": "NONE"}, "multiple values for argument 'pos_encoding_mode'"),
        (("NONE",) * 17, {}, "at most 16"),
        ((-1,), {}, "cannot read these positional arguments"),
        ((), {"window": 3}, "unexpected keyword argument 'window'"),
    ],
)
def test_a_wrong_tail_is_a_type_error(tail: tuple[Any, ...], kwargs: dict[str, Any], named_: str) -> None:
    with pytest.raises(TypeError, match=named_):
        named(tail, kwargs)


def buffers(requests: int, pages: int = 8) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return int32([0] * (requests + 1)), int32([-1] * pages), int32([0] * requests)


def test_graph_mode_fixes_the_batch_and_fills_padding_rows(batch: Batch) -> None:
    own = buffers(4)
    wrapper = rocade.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(workspace(), *own)
    planned(batch, wrapper)
    assert own[0].tolist() == batch.pages.indptr.tolist()
    assert own[1][:5].tolist() == batch.pages.indices.tolist()
    assert own[2].tolist() == batch.pages.last_page_len.tolist()
    q = torch.cat([batch.q, torch.full((2, HEADS, DIM), NAN)])
    out, lse = wrapper.run(q, batch.fused, return_lse=True)
    batch.check((out[:4], lse[:4]))
    assert (out[4:] == 0).all()
    assert (lse[4:] == float("-inf")).all()
    with pytest.raises(ValueError, match="last_page_len: got 1 requests, expected 4"):
        planned(Batch([1], [3]), wrapper)
    with pytest.raises(ValueError, match="q_len_per_req: got 2, expected 1, fixed by the first plan"):
        planned(Batch([2] * 4, [9, 2, 3, 4]), wrapper, q_len_per_req=2)


def test_page_ids_are_read_again_at_each_run(batch: Batch) -> None:
    own = buffers(4)
    wrapper = planned(batch, rocade.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(workspace(), *own))
    order = torch.randperm(batch.fused.shape[0], generator=torch.Generator().manual_seed(0))
    moved = torch.full_like(batch.fused, NAN)
    moved[order] = batch.fused
    own[1][:5] = order[batch.pages.indices.long()]
    batch.check(wrapper.run(batch.q, moved, return_lse=True))


def test_a_page_id_that_left_the_pool_after_planning_is_skipped(batch: Batch) -> None:
    own = buffers(4)
    wrapper = planned(batch, rocade.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(workspace(), *own))
    own[1].fill_(10**8)
    out, lse = wrapper.run(batch.q, batch.fused, return_lse=True)
    assert (out == 0).all()
    assert (lse == float("-inf")).all()


def test_graph_mode_needs_its_buffers() -> None:
    indptr, indices, last = buffers(4)
    good = {
        "paged_kv_indptr_buffer": indptr,
        "paged_kv_indices_buffer": indices,
        "paged_kv_last_page_len_buffer": last,
    }
    for name in good:
        with pytest.raises(ValueError, match=f"{name}: got NoneType"):
            Decode(workspace(), use_cuda_graph=True, **{**good, name: None})
    with pytest.raises(ValueError, match="paged_kv_indptr_buffer: got 4 entries, expected 5"):
        Decode(workspace(), use_cuda_graph=True, **{**good, "paged_kv_indptr_buffer": last})


def test_max_seq_len_is_a_bound(batch: Batch) -> None:
    planned(batch, Decode(workspace(), max_seq_len=9))
    with pytest.raises(ValueError, match="indptr: got a request of 9 tokens, expected at most 8"):
        planned(batch, Decode(workspace(), max_seq_len=8))


def test_fast_decode_plan_reads_the_host_indptr(batch: Batch) -> None:
    wrapper = Decode(workspace())
    indptr, indices, last = batch.pages.table
    wrapper.begin_forward = functools.partial(rocade.fast_decode_plan, wrapper)  # type: ignore[method-assign]
    on_device = torch.empty(indptr.shape, dtype=torch.int32, device="meta")  # no values to read
    wrapper.begin_forward(
        on_device, indices, last, *SIZES, PAGE, q_data_type="float32", global_override_indptr_cpu=indptr
    )
    batch.check(wrapper.run(batch.q, batch.fused, return_lse=True))
    with pytest.raises(ValueError, match="last_page_len"):
        wrapper.begin_forward(indptr, indices, last + 4, *SIZES, PAGE)


def test_forward_replaces_what_was_planned(batch: Batch) -> None:
    wrapper = planned(batch, window_left=1)
    result = wrapper.forward_return_lse(batch.q, batch.fused, logits_soft_cap=3.0, sm_scale=0.5, k_scale=2.0)
    batch.check(result, soft_cap=3.0, scale=1.0)
    assert torch.equal(wrapper.forward(batch.q, batch.fused), planned(batch).run(batch.q, batch.fused))
    several = Batch([2, 2], [5, 6])
    wrapper = planned(several, q_len_per_req=2)
    several.check(wrapper.forward_return_lse(several.q, several.fused, sm_scale=0.5), causal=True, scale=0.5)


def test_workspace_size_plans_nothing(batch: Batch) -> None:
    wrapper = Decode(workspace())
    float_bytes, int_bytes = wrapper.workspace_size(*batch.pages.table, *SIZES, PAGE, **FP32)
    assert (float_bytes, int_bytes) == (planned(batch)._plan.workspace_bytes, 0)  # type: ignore[union-attr]
    with pytest.raises(rocade.NotPlannedError):
        wrapper.run(batch.q, batch.fused)


def test_the_wrapper_says_what_it_is(batch: Batch) -> None:
    wrapper = Decode(workspace(), use_tensor_cores=True, backend="fa2")
    assert (wrapper.use_tensor_cores, wrapper.is_cuda_graph_enabled, wrapper.backend) == (True, False, "auto")
    planned(batch, wrapper)
    assert wrapper.backend == rocade.explain(wrapper).backend
    assert wrapper._paged_kv_indices_buf.tolist() == batch.pages.indices.tolist()  # type: ignore[union-attr]
    wrapper.end_forward()


def test_single_decode_names_what_is_malformed() -> None:
    q, k = torch.zeros(HEADS, DIM), torch.zeros(5, KV_HEADS, DIM)
    for args, named_ in (
        ((q[None], k, k), r"q: got shape \[1, 4, 16\], expected \[heads, head_dim\]"),
        ((None, k, k), "q: got NoneType"),
        ((q, k[0], k), "k: got"),
        ((q, k, k[:4]), "v: got"),
        ((q, k.half(), k), "v: got torch.float32, expected torch.float16"),
        ((q, k, k, "NDH"), "kv_layout"),
        ((q[:3], k, k), "num_qo_heads: got 3"),
    ):
        with pytest.raises(ValueError, match=named_):
            rocade.single_decode_with_kv_cache(*args)
