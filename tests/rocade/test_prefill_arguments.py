"""Arguments of the prefill wrappers: honoured, refused by name, or malformed and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.rocade.batches import (
    DIM,
    HEADS,
    KV_HEADS,
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
State = tuple[torch.Tensor, torch.Tensor | None]
Change = Callable[[torch.Tensor, torch.Tensor], State]
Plan = Callable[..., Paged | Ragged]


@pytest.fixture
def batch() -> Batch:
    return mixed()


def test_results_go_where_the_caller_says(batch: Batch) -> None:
    wrapper = plan_paged(batch, causal=True)
    expected = wrapper.run(batch.q, batch.fused, return_lse=True)
    wide = torch.full((8, HEADS, 2 * DIM), NAN)
    out, lse = wide[..., :DIM], torch.full((8, HEADS), NAN)
    got = wrapper.run(batch.q, batch.fused, out=out, lse=lse, return_lse=True)
    assert got[0] is out
    assert got[1] is lse
    assert torch.equal(out, expected[0])
    assert torch.equal(lse, expected[1])
    assert wide[..., DIM:].isnan().all()
    lse.fill_(NAN)
    assert wrapper.run(batch.q, batch.fused, lse=lse) is not None  # an lse= is filled, asked back or not
    assert torch.equal(lse, expected[1])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda o, s: (o[:-1], s), r"partial_state\[0\]: got shape"),
        (lambda o, s: (o, s[:, :1]), r"partial_state\[1\]: got shape"),
        (lambda o, s: (o.half(), s), r"partial_state\[0\]: got torch.float16, expected torch.float32"),
        (lambda o, s: (o, s.double()), r"partial_state\[1\]: got torch.float64"),
        (lambda o, s: (o.to("meta"), s), r"partial_state\[0\]: got device meta"),
        (lambda o, s: (torch.cat([o, o], 2)[..., ::2], s), r"partial_state\[0\]: got stride 2"),
        (lambda o, s: (o, None), r"partial_state\[1\]: got NoneType"),
    ],
)
def test_a_malformed_partial_state_is_named(batch: Batch, change: Change, named: str) -> None:
    state = change(torch.zeros(8, HEADS, DIM), torch.zeros(8, HEADS))
    with pytest.raises(ValueError, match=named):
        plan_paged(batch).run(batch.q, batch.fused, partial_state=state)


@pytest.mark.parametrize(
    ("q", "out", "lse", "named"),
    [
        (torch.zeros(7, HEADS, DIM), None, None, r"q: got shape \[7, 4, 16\], expected shape \[8, 4, 16\]"),
        (torch.zeros(9, HEADS, DIM), None, None, "q: got shape"),
        (torch.zeros(8, HEADS * DIM), None, None, "q: got shape"),
        (torch.zeros(8, HEADS, DIM).half(), None, None, "q: got torch.float16, expected torch.float32"),
        (torch.zeros(8, HEADS, DIM, device="meta"), None, None, "q: got device meta"),
        (torch.zeros(8, HEADS, 2 * DIM)[..., ::2], None, None, "q: got stride 2"),
        (torch.zeros(8, HEADS, DIM, requires_grad=True), None, None, "q: got a tensor that requires grad"),
        ("q", None, None, "q: got str"),
        (None, torch.zeros(8, HEADS, DIM + 1), None, "out: got shape"),
        (None, torch.zeros(8, HEADS, DIM).half(), None, "out: got torch.float16"),
        (None, None, torch.zeros(8, HEADS).half(), "lse: got torch.float16, expected torch.float32"),
        (None, None, torch.zeros(HEADS, 8), "lse: got shape"),
    ],
)
def test_a_malformed_tensor_at_run_is_named(
    batch: Batch, q: object, out: torch.Tensor | None, lse: torch.Tensor | None, named: str
) -> None:
    q = batch.q if q is None else q
    for run in (
        lambda: plan_paged(batch).run(q, batch.fused, out=out, lse=lse),
        lambda: plan_ragged(batch).run(q, *dense(batch), out=out, lse=lse),
    ):
        with pytest.raises(ValueError, match=named):
            run()


def test_a_strided_lse_and_a_strided_partial_state_are_welcome(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    wide = torch.full((8, 2 * HEADS), NAN)
    state = torch.randn(8, HEADS, 3 * DIM)[..., DIM : 2 * DIM], torch.randn(8, 2 * HEADS)[:, :HEADS]
    packed = (state[0].contiguous(), state[1].contiguous())
    expected = wrapper.run(batch.q, batch.fused, partial_state=packed, return_lse=True)
    out = wrapper.run(batch.q, batch.fused, partial_state=state, lse=wide[:, :HEADS])
    assert torch.equal(out, expected[0])
    assert torch.equal(wide[:, :HEADS], expected[1])
    assert wide[:, HEADS:].isnan().all()


@pytest.mark.parametrize(("name", "shape"), [("out", (HEADS, DIM)), ("lse", (HEADS,))])
def test_results_need_memory_for_every_element(batch: Batch, name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"{name}: got strides"):
        plan_paged(batch).run(batch.q, batch.fused, **{name: torch.empty(1, *shape).expand(8, *shape)})


@pytest.mark.parametrize("cache", [None, "cache", (), (torch.zeros(8, 2, 4, KV_HEADS, DIM),)])
def test_what_is_no_cache_is_named(batch: Batch, cache: object) -> None:
    with pytest.raises(ValueError, match="paged_kv_cache: got"):
        plan_paged(batch).run(batch.q, cache)  # type: ignore[call-overload]


def test_a_result_may_not_lie_on_the_query(batch: Batch) -> None:
    with pytest.raises(ValueError, match="out: got memory of q"):
        plan_paged(batch).run(batch.q, batch.fused, out=batch.q)


def test_a_result_may_not_lie_on_keys_values_or_the_other_result(batch: Batch) -> None:
    pool = batch.fused.clone()
    out = pool.view(-1)[5 : 5 + batch.q.numel()].view_as(batch.q)
    lse = pool.view(-1)[-batch.q[..., 0].numel() :].view(batch.q.shape[:2])
    for given in ({"out": out}, {"lse": lse}):
        (name,) = given
        with pytest.raises(ValueError, match=f"{name}: got memory of K, V or the other result"):
            plan_paged(batch).run(batch.q, pool, **given)
    own = torch.zeros_like(batch.q)
    with pytest.raises(ValueError, match="lse: got memory of K, V or the other result"):
        plan_paged(batch).run(batch.q, batch.fused, out=own, lse=own.view(-1)[: lse.numel()].view_as(lse))
    assert torch.equal(pool.nan_to_num(7.0), batch.fused.nan_to_num(7.0))


def test_an_input_that_wants_a_gradient_is_named(batch: Batch) -> None:
    state = torch.zeros(8, HEADS, DIM), torch.zeros(8, HEADS, requires_grad=True)
    with pytest.raises(ValueError, match=r"paged_kv_cache \(K\): got a tensor that requires grad"):
        plan_paged(batch).run(batch.q, batch.fused.clone().requires_grad_())
    k, v = dense(batch)
    with pytest.raises(ValueError, match=r"v: got a tensor that requires grad"):
        plan_ragged(batch).run(batch.q, k, v.clone().requires_grad_())
    with pytest.raises(ValueError, match=r"partial_state\[1\]: got a tensor that requires grad"):
        plan_paged(batch).run(batch.q, batch.fused, partial_state=state)


def test_a_lazily_negated_view_is_not_read_as_its_memory(batch: Batch) -> None:
    for q, cache, name in (
        (torch._neg_view(batch.q), batch.fused, "q"),
        (batch.q, torch._neg_view(batch.fused), r"paged_kv_cache \(K\)"),
    ):
        with pytest.raises(ValueError, match=f"{name}: got a lazily negated view"):
            plan_paged(batch).run(q, cache)


def test_a_query_that_requires_grad_is_fine_without_grad_mode(batch: Batch) -> None:
    with torch.no_grad():
        plan_paged(batch).run(batch.q.clone().requires_grad_(), batch.fused)


def test_running_before_planning_says_so(batch: Batch) -> None:
    for wrapper, tensors in ((Paged(workspace()), [batch.fused]), (Ragged(workspace()), dense(batch))):
        with pytest.raises(rocade.NotPlannedError, match=r"call plan\(\) before run\(\)"):
            wrapper.run(batch.q, *tensors)
        with pytest.raises(rocade.NotPlannedError):
            wrapper.forward(batch.q, *tensors)


def test_a_failed_plan_leaves_the_current_one(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    with pytest.raises(ValueError, match="window_left"):
        plan_paged(Batch([1], [3]), wrapper, window_left="wide")
    batch.check(wrapper.run(batch.q, batch.fused, return_lse=True))


@pytest.mark.parametrize("plan", [plan_paged, plan_ragged])
@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        (
            {"custom_mask": torch.ones(7, dtype=torch.bool)},
            ValueError,
            "custom_mask: got 7 elements, expected 47",
        ),
        ({"custom_mask": torch.ones(47)}, ValueError, "custom_mask: got torch.float32"),
        ({"custom_mask": torch.ones(1, 47, dtype=torch.bool)}, ValueError, "custom_mask: got shape"),
        (
            {"packed_custom_mask": torch.ones(6, dtype=torch.uint8)},
            ValueError,
            "packed_custom_mask: got 6 bytes, expected 7",
        ),
        ({"packed_custom_mask": torch.ones(7)}, ValueError, "packed_custom_mask: got torch.float32"),
        ({"seq_lens": int32([9, 0, 6, 5])}, ValueError, r"seq_lens\[3\]: got 5, expected 4"),
        ({"seq_lens_q": int32([3, 0, 1, 5])}, ValueError, r"seq_lens_q\[2\]: got 1, expected 0"),
        ({"max_token_per_sequence": 4}, ValueError, "max_token_per_sequence: got 4, expected at least 5"),
        ({"max_sequence_kv": 8}, ValueError, "max_sequence_kv: got 8, expected at least 9"),
        ({"use_fp16_qk_reduction": True}, NotImplementedError, "use_fp16_qk_reduction"),
        ({"prefix_len_ptr": int32([1])}, NotImplementedError, "prefix_len_ptr"),
        ({"token_pos_in_items_ptr": int32([1])}, NotImplementedError, "token_pos_in_items_ptr"),
        ({"token_pos_in_items_len": 3}, NotImplementedError, "token_pos_in_items_len"),
        ({"max_item_len_ptr": int32([1])}, NotImplementedError, "max_item_len_ptr"),
        ({"head_dim_vo": 0}, ValueError, "head_dim_vo"),
        ({"q_data_type": "int8"}, ValueError, "q_data_type"),
    ],
)
def test_a_malformed_or_refused_plan_argument_is_named(
    batch: Batch, plan: Plan, options: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        plan(batch, **options)


def test_arguments_that_one_wrapper_has_are_refused_there(batch: Batch) -> None:
    with pytest.raises(NotImplementedError, match="block_tables"):
        plan_paged(batch, block_tables=int32([1]))
    for name in ("v_indptr", "o_indptr"):
        with pytest.raises(NotImplementedError, match=name):
            plan_ragged(batch, **{name: batch.kv_indptr})
    for make in (Paged, Ragged):
        for name in ("jit_args", "jit_kwargs"):
            with pytest.raises(NotImplementedError, match=name):
                make(workspace(), **{name: ["x"]})


def test_neutral_arguments_are_accepted(batch: Batch) -> None:
    neutral = {
        "use_fp16_qk_reduction": False,
        "non_blocking": False,
        "prefix_len_ptr": None,
        "token_pos_in_items_len": 0,
        "seq_lens": int32(batch.keys),
        "seq_lens_q": int32(batch.rows),
        "max_token_per_sequence": 5,
        "max_sequence_kv": 9,
    }
    batch.check(plan_paged(batch, **neutral).run(batch.q, batch.fused, enable_pdl=True, return_lse=True))
    batch.check(
        plan_ragged(batch, **neutral).run(
            batch.q, *dense(batch), enable_pdl=True, o_scale=1.0, return_lse=True
        )
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sinks", torch.zeros(HEADS)),
        ("kv_cache_sf", torch.zeros(1)),
        ("skip_softmax_threshold_scale_factor", 1.0),
        ("use_fp16_softmax", True),
        ("uses_spcompress", True),
    ],
)
def test_refused_run_arguments_are_named(batch: Batch, name: str, value: object) -> None:
    with pytest.raises(NotImplementedError, match=name):
        plan_paged(batch).run(batch.q, batch.fused, **{name: value})


def test_custom_kernel_arguments_and_output_scales_are_refused(batch: Batch) -> None:
    with pytest.raises(NotImplementedError, match="args"):
        plan_paged(batch).run(batch.q, batch.fused, 0.5)
    for given in ({"o_scale": 0.5}, {"kv_cache_sf": torch.zeros(1)}):
        with pytest.raises(NotImplementedError, match=next(iter(given))):
            plan_ragged(batch).run(batch.q, *dense(batch), **given)
    for given in ({"use_fp16_qk_reduction": True}, {"kv_cache_sf": torch.zeros(1)}):
        with pytest.raises(NotImplementedError, match=next(iter(given))):
            rocade.single_prefill_with_kv_cache(batch.q, *dense(batch), **given)
    with pytest.raises(ValueError, match="scale_q: got a tensor of shape"):
        rocade.single_prefill_with_kv_cache(batch.q, *dense(batch), scale_q=torch.ones(HEADS))


def test_a_window_at_run_is_the_planned_one(batch: Batch) -> None:
    wrapper = plan_paged(batch, window_left=3)
    batch.check(wrapper.run(batch.q, batch.fused, window_left=3, return_lse=True), window_left=3)
    with pytest.raises(ValueError, match="window_left: got 2, expected None or 3"):
        wrapper.run(batch.q, batch.fused, window_left=2)
    assert plan_paged(batch).run(batch.q, batch.fused, window_left=-5) is not None
