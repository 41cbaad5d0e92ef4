"""Prefill wrappers against the oracle: every kind of mask, cache, dtype, scale and state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.rocade import paged
from tests.rocade.batches import (
    DIM,
    FP32,
    HEADS,
    KV_HEADS,
    PAGE,
    SIZES,
    Batch,
    Paged,
    Ragged,
    dense,
    mixed,
    plan_paged,
    plan_ragged,
    workspace,
)
from tests.rocade.paged import int32

import rocade

NAN = float("nan")


@pytest.fixture
def batch() -> Batch:
    return mixed()


OPTIONS = [
    ({}, {}),
    ({"causal": True}, {"causal": True}),
    ({"causal": True, "window_left": 2}, {"causal": True, "window_left": 2}),
    ({"window_left": 0}, {"window_left": 0}),
    ({"logits_soft_cap": 2.0, "sm_scale": 0.5}, {"soft_cap": 2.0, "scale": 0.5}),
    ({"pos_encoding_mode": "ALIBI", "causal": True}, {"pos_encoding": "ALIBI", "causal": True}),
    (
        {"pos_encoding_mode": "ROPE_LLAMA", "rope_theta": 1e3, "rope_scale": 2.0},
        {"pos_encoding": "ROPE_LLAMA", "rope_theta": 1e3, "rope_scale": 2.0},
    ),
]


@pytest.mark.parametrize(("options", "rules"), OPTIONS)
def test_paged_matches_the_oracle(batch: Batch, options: dict[str, Any], rules: dict[str, Any]) -> None:
    wrapper = plan_paged(batch, **options)
    batch.check(wrapper.run(batch.q, batch.pages.cache, return_lse=True), **rules)
    batch.check(wrapper.run(batch.q, batch.fused, return_lse=True), **rules)


@pytest.mark.parametrize(("options", "rules"), OPTIONS)
def test_ragged_matches_the_oracle(batch: Batch, options: dict[str, Any], rules: dict[str, Any]) -> None:
    wrapper = plan_ragged(batch, **options)
    batch.check(wrapper.run(batch.q, *dense(batch), return_lse=True), **rules)


@pytest.mark.parametrize(("options", "rules"), OPTIONS)
def test_single_matches_the_oracle(options: dict[str, Any], rules: dict[str, Any]) -> None:
    batch = Batch([5], [9])
    batch.check(
        rocade.single_prefill_with_kv_cache(batch.q, *dense(batch), return_lse=True, **options), **rules
    )
    transposed = [t.transpose(0, 1).contiguous() for t in dense(batch)]
    batch.check(
        rocade.single_prefill_with_kv_cache_return_lse(batch.q, *transposed, kv_layout="HND", **options),
        **rules,
    )


@pytest.mark.parametrize("packed", [False, True])
def test_a_custom_mask_overrides_causal_and_goes_with_its_plan(batch: Batch, packed: bool) -> None:
    masks = [
        torch.rand(n, m, generator=torch.Generator().manual_seed(m)) > 0.4
        for n, m in zip(batch.rows, batch.keys, strict=True)
    ]
    flat = torch.cat([m.flatten() for m in masks])
    given = {"custom_mask": flat}
    if packed:
        bits = [rocade.packbits(m.flatten(), bitorder="little") for m in masks]
        given = {"packed_custom_mask": torch.cat(bits), "custom_mask": ~flat}  # the packed one wins
    paged_wrapper = plan_paged(batch, causal=True, window_left=4, **given)
    ragged = plan_ragged(batch, causal=True, window_left=4, **given)
    batch.check(paged_wrapper.run(batch.q, batch.pages.cache, return_lse=True), masks, window_left=4)
    batch.check(ragged.run(batch.q, *dense(batch), return_lse=True), masks, window_left=4)
    plan_paged(batch, paged_wrapper)
    plan_ragged(batch, ragged)
    batch.check(paged_wrapper.run(batch.q, batch.pages.cache, return_lse=True))
    batch.check(ragged.run(batch.q, *dense(batch), return_lse=True))


def test_masks_may_be_uint8_and_single_ones_are_matrices() -> None:
    batch = Batch([3], [10])
    mask = torch.rand(3, 10, generator=torch.Generator().manual_seed(1)) > 0.5
    given = {"custom_mask": mask.to(torch.uint8)}
    batch.check(
        rocade.single_prefill_with_kv_cache(batch.q, *dense(batch), causal=True, return_lse=True, **given),
        [mask],
    )
    packed = rocade.packbits(mask.flatten(), bitorder="little")
    batch.check(
        rocade.single_prefill_with_kv_cache(
            batch.q, *dense(batch), packed_custom_mask=packed, return_lse=True
        ),
        [mask],
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_dtypes_and_an_output_of_another_one(dtype: torch.dtype) -> None:
    batch = Batch([3, 2], [9, 7], dtype=dtype)
    wrapper = plan_paged(batch, q_data_type=dtype, causal=True)
    batch.check(wrapper.run(batch.q, batch.pages.cache, return_lse=True), causal=True)
    plan_paged(batch, wrapper, q_data_type=dtype, o_data_type="float32")
    assert wrapper.run(batch.q, batch.pages.cache).dtype is torch.float32


@pytest.mark.parametrize(
    "kv_dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
)
def test_8_bit_caches_are_dequantised_and_scaled(kv_dtype: torch.dtype) -> None:
    batch = Batch([2, 3], [6, 5])
    cache = tuple(torch.nan_to_num(t).to(kv_dtype) for t in batch.pages.cache)
    for name in ("k", "v"):
        setattr(batch, name, [t.to(kv_dtype).float() for t in getattr(batch, name)])
    wrapper = plan_paged(batch, kv_data_type=kv_dtype)
    result = wrapper.run(batch.q, cache, k_scale=0.5, v_scale=torch.tensor(3.0), q_scale=2.0, return_lse=True)
    batch.check(result, v_scale=3.0)


def test_scales_multiply_logits_and_result(batch: Batch) -> None:
    scales = {"q_scale": 0.5, "k_scale": torch.tensor([3.0]), "v_scale": 0.25}
    rules = {"scale": 1.5 * DIM**-0.5, "v_scale": 0.25}
    batch.check(plan_paged(batch).run(batch.q, batch.fused, return_lse=True, **scales), **rules)
    batch.check(plan_ragged(batch).run(batch.q, *dense(batch), return_lse=True, **scales), **rules)
    one = Batch([2], [7])
    result = rocade.single_prefill_with_kv_cache(
        one.q, *dense(one), 0.5, torch.tensor(2.0), 0.5, k_scale=1.5, v_scale=0.5, return_lse=True
    )
    one.check(result, **rules)


def test_scales_of_one_change_no_bit(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    plain = wrapper.run(batch.q, batch.fused, return_lse=True)
    ones = wrapper.run(
        batch.q, batch.fused, return_lse=True, q_scale=1.0, k_scale=torch.ones(()), v_scale=torch.ones(1)
    )
    assert all(torch.equal(a, b) for a, b in zip(plain, ones, strict=True))


def test_a_partial_state_is_merged_in() -> None:
    """Keys cut in two, the first part merged into the run over the second, equal the run over all of them."""
    whole = Batch([3, 2], [8, 12])
    parts = [Batch([3, 2], [4, 8]), Batch([3, 2], [4, 4])]
    for name in ("k", "v"):
        first = [t[: len(t) - 4] for t in getattr(whole, name)]
        setattr(parts[0], name, first)
        setattr(parts[1], name, [t[-4:] for t in getattr(whole, name)])
    runs = []
    for part in parts:
        part.pages = paged.put(part.k, part.v, PAGE)
        part.q = whole.q
        runs.append(plan_paged(part))
    state = runs[0].run(whole.q, parts[0].fused, return_lse=True)
    whole.check(runs[1].run(whole.q, parts[1].fused, partial_state=state, return_lse=True))
    out, lse = state
    runs[1].run(whole.q, parts[1].fused, partial_state=state, out=out, lse=lse)  # in place
    whole.check((out, lse))
    empty = torch.zeros_like(out), torch.full_like(lse, float("-inf"))
    parts[1].check(runs[1].run(whole.q, parts[1].fused, partial_state=empty, return_lse=True))


def test_a_query_may_be_a_slice_of_a_fused_projection(batch: Batch) -> None:
    qkv = torch.randn(8, HEADS + 2 * KV_HEADS, DIM)
    qkv[:, :HEADS] = batch.q
    batch.check(plan_paged(batch).run(qkv[:, :HEADS], batch.fused, return_lse=True))


def test_forward_replaces_what_was_planned(batch: Batch) -> None:
    wrapper, ragged = plan_paged(batch, causal=True, window_left=1), plan_ragged(batch, causal=True)
    flags = {"causal": False, "logits_soft_cap": 1.5, "sm_scale": 0.5, "window_left": 6}
    rules = {"soft_cap": 1.5, "scale": 0.5, "window_left": 6}
    batch.check(wrapper.forward_return_lse(batch.q, batch.fused, **flags), **rules)
    batch.check(ragged.forward_return_lse(batch.q, *dense(batch), **flags), **rules)
    batch.check(wrapper.run_return_lse(batch.q, batch.fused), **rules)  # from now on
    batch.check(ragged.run_return_lse(batch.q, *dense(batch)), **rules)
    out = wrapper.forward(batch.q, batch.fused, k_scale=2.0, v_scale=0.5)
    paged.assert_matches(
        (out, wrapper.run(batch.q, batch.fused, k_scale=2.0, return_lse=True)[1]),
        batch.expected(scale=2 * DIM**-0.5, v_scale=0.5),
        batch.dtype,
    )
    with pytest.raises(NotImplementedError, match="use_fp16_qk_reduction"):
        wrapper.forward(batch.q, batch.fused, use_fp16_qk_reduction=True)


def test_forward_plans_each_variant_once(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = plan_paged(batch, causal=True)
    wrapper.forward(batch.q, batch.fused, causal=False)
    first = wrapper._plan
    for causal in (True, False, True, False):
        wrapper.forward(batch.q, batch.fused, causal=causal)
    assert wrapper._plan is first
    assert len(wrapper._plans) == 2
    for window in range(100):
        wrapper.forward(batch.q, batch.fused, window_left=window)
    assert len(wrapper._plans) <= 8
    batch.check(wrapper.run_return_lse(batch.q, batch.fused), window_left=99)


def test_planned_values_can_be_read_and_assigned_under_their_private_names(batch: Batch) -> None:
    wrapper = plan_paged(batch, causal=True, window_left=3, logits_soft_cap=2.0, sm_scale=0.25)
    read = (wrapper._causal, wrapper._window_left, wrapper._logits_soft_cap, wrapper._sm_scale)
    assert read == (True, 3, 2.0, 0.25)
    assert (wrapper._pos_encoding_mode, wrapper._rope_scale, wrapper._rope_theta) == ("NONE", 1.0, 1e4)
    wrapper._window_left, wrapper._logits_soft_cap, wrapper._sm_scale = -1, None, None
    batch.check(wrapper.run_return_lse(batch.q, batch.fused), causal=True)
    wrapper._causal = False
    batch.check(wrapper.run_return_lse(batch.q, batch.fused))


def test_head_dims_may_differ() -> None:
    batch = Batch([3, 2], [9, 7])
    batch.v = [paged.rand(n, KV_HEADS, 8, seed=n) for n in batch.keys]
    wrapper = plan_ragged(batch, causal=True, head_dim_vo=8)
    batch.check(wrapper.run(batch.q, *dense(batch), return_lse=True), causal=True)
    pages = paged.put(batch.k, batch.v, PAGE)
    paged_wrapper = Paged(workspace())
    paged_wrapper.plan(batch.qo_indptr, *pages.table, *SIZES, PAGE, 8, causal=True, **FP32)
    batch.check(paged_wrapper.run(batch.q, pages.cache, return_lse=True), causal=True)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_layouts_and_indptr_that_start_above_zero(layout: str) -> None:
    batch = Batch([3, 2], [9, 7])
    indptr, indices, last = batch.pages.table
    shifted = (indptr + 2, torch.cat([int32([-7, 10**6]), indices, int32([-1])]), last)
    cache = batch.fused if layout == "NHD" else batch.fused.transpose(2, 3)
    wrapper = Paged(workspace(), layout)
    wrapper.plan(batch.qo_indptr, *shifted, *SIZES, PAGE, **FP32)
    batch.check(wrapper.run(batch.q, cache, return_lse=True))
    k, v = (torch.cat([torch.full((4, KV_HEADS, DIM), NAN), t]) for t in dense(batch))
    if layout == "HND":
        k, v = k.transpose(0, 1), v.transpose(0, 1)
    ragged = Ragged(workspace(), layout)
    ragged.plan(batch.qo_indptr, batch.kv_indptr + 4, *SIZES, **FP32)
    batch.check(ragged.run(batch.q, k, v, return_lse=True))


def test_an_empty_batch_has_an_empty_answer() -> None:
    wrapper, q = Paged(workspace()), torch.empty(0, HEADS, DIM)
    wrapper.plan(int32([0]), int32([0]), int32([]), int32([]), *SIZES, PAGE, **FP32)
    out, lse = wrapper.run(q, torch.randn(1, 2, PAGE, KV_HEADS, DIM), return_lse=True)
    assert (out.shape, lse.shape) == ((0, HEADS, DIM), (0, HEADS))
    ragged = Ragged(workspace())
    ragged.plan(int32([0]), int32([0]), *SIZES, **FP32)
    assert ragged.run(q, q[:, :KV_HEADS], q[:, :KV_HEADS]).shape == (0, HEADS, DIM)
    batch = Batch([3], [4])
    out, lse = rocade.single_prefill_with_kv_cache(batch.q, batch.k[0][:0], batch.v[0][:0], return_lse=True)
    assert (out == 0).all()
    assert (lse == float("-inf")).all()


def test_the_same_inputs_give_the_same_bits(batch: Batch) -> None:
    runs = [plan_paged(batch, causal=True).run(batch.q, batch.fused, return_lse=True) for _ in range(3)]
    assert all(torch.equal(a, b) for run in runs for a, b in zip(run, runs[0], strict=True))


def test_batch_invariance_is_passed_on(batch: Batch) -> None:
    wrapper = plan_paged(batch, fixed_split_size=2, disable_split_kv=False)
    assert wrapper._plan is not None
    assert wrapper._plan.request.fixed_split_size == 2 * PAGE
    assert plan_ragged(batch, disable_split_kv=True)._plan.request.disable_split_kv  # type: ignore[union-attr]
    batch.check(wrapper.run(batch.q, batch.fused, return_lse=True))


def test_old_spellings(batch: Batch) -> None:
    wrapper = Paged(workspace())
    wrapper.begin_forward(
        batch.qo_indptr,
        *batch.pages.table,
        num_qo_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=DIM,
        page_size=PAGE,
        q_data_type="float32",
    )
    batch.check(wrapper.forward_return_lse(batch.q, batch.fused))
    wrapper.end_forward()
    ragged = Ragged(workspace())
    ragged.begin_forward(batch.qo_indptr, batch.kv_indptr, HEADS, KV_HEADS, head_dim=DIM, **FP32)
    batch.check(ragged.forward_return_lse(batch.q, *dense(batch)))
