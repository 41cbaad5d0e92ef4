"""torch.compile: every op passes opcheck, graphs have no break, and planning again recompiles nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.rocade.batches import (
    DIM,
    FP32,
    HEADS,
    PAGE,
    SIZES,
    Batch,
    dense,
    plan_paged,
    plan_ragged,
    workspace,
)
from torch._dynamo.testing import CompileCounter

import rocade
from rocade import _ops
from rocade._wrapper import BatchWrapper

Runs = Callable[..., Any]
Results = torch.Tensor | tuple[torch.Tensor, ...]


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch._dynamo.reset()


@pytest.fixture
def batch() -> Batch:
    return Batch([3, 5], [9, 6])


def compiled(call: Runs) -> tuple[Runs, CompileCounter]:
    counter = CompileCounter()
    return torch.compile(call, fullgraph=True, backend=counter), counter


def equal(a: Results, b: Results) -> bool:
    pairs = zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]
    return all(torch.equal(x, y) for x, y in pairs)


def op_arguments(wrapper: BatchWrapper, q: torch.Tensor, *caches: torch.Tensor) -> tuple[Any, ...]:
    return (wrapper._handle, q, list(caches), 1.0, 1.0, [], [], None, None, torch.float32, DIM)


def test_opcheck_of_the_wrapper_ops(batch: Batch) -> None:
    wrapper, ragged = plan_paged(batch, causal=True), plan_ragged(batch)
    given = op_arguments(wrapper, batch.q, batch.fused)
    out, lse = torch.empty_like(batch.q), torch.empty(8, HEADS)
    state = (torch.zeros_like(out), torch.zeros_like(lse))
    ops = torch.ops.rocade
    for op, args in (
        (ops.attend, given),
        (ops.attend_lse, (*given[:5], [torch.tensor(2.0)], [torch.tensor(0.5)], *state, *given[9:])),
        (ops.attend_out, (*given, out, lse)),
        (ops.attend_out, (*given, out, None)),
        (ops.attend, op_arguments(ragged, batch.q, *dense(batch))),
    ):
        torch.library.opcheck(op, args)


def test_opcheck_of_the_single_ops(batch: Batch) -> None:
    k, v = dense(batch)
    mask = torch.ones(8, 15, dtype=torch.bool)
    head = ("NHD", "auto")
    prefill = (batch.q, k, v, *head, mask, None, 1.0, 2.0, [torch.tensor(0.5)], [])
    flags = (True, "NONE", -1, None, 5.0, None, None, torch.float32)
    decode = (batch.q[0], k, v, *head, 1.0, 1.0, [], [], "NONE", 3, 0.5, None, None, None)
    for op in (torch.ops.rocade.single_prefill, torch.ops.rocade.single_prefill_lse):
        torch.library.opcheck(op, (*prefill, *flags))
    for op in (torch.ops.rocade.single_decode, torch.ops.rocade.single_decode_lse):
        torch.library.opcheck(op, decode)


def test_planning_again_recompiles_nothing(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    call, counter = compiled(lambda q, cache: wrapper.run(q * 2, cache, k_scale=0.5, return_lse=True))
    plans = [
        (batch, {}),
        (batch, {"causal": True}),
        (batch, {"window_left": 2, "logits_soft_cap": 3.0}),
        (Batch([4, 4], [5, 7]), {}),
        (Batch([8], [9]), {"sm_scale": 0.5}),
        (batch, {"custom_mask": torch.arange(57) % 3 > 0}),
    ]
    for planned, options in plans:
        plan_paged(planned, wrapper, **options)
        assert equal(
            call(planned.q, planned.fused),
            wrapper.run(planned.q * 2, planned.fused, k_scale=0.5, return_lse=True),
        )
    recompiles = counter.frame_count - 1
    assert recompiles <= 1  # the pool's size differs between batches, once, and is dynamic from then on
    before = counter.frame_count
    for planned, options in plans:
        plan_paged(planned, wrapper, **options)
        call(planned.q, planned.fused)
    assert counter.frame_count == before


def test_one_pool_is_compiled_once(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    call, counter = compiled(lambda q, cache: wrapper.run(q, cache))
    for options in ({}, {"causal": True}, {"window_left": 1}, {"fixed_split_size": 1}):
        plan_paged(batch, wrapper, **options)
        assert equal(call(batch.q, batch.fused), wrapper.run(batch.q, batch.fused))
    assert counter.frame_count == 1


def test_decode_and_ragged_are_compiled_once(batch: Batch) -> None:
    ragged, decode = plan_ragged(batch), rocade.BatchDecodeWithPagedKVCacheWrapper(workspace())
    call, counter = compiled(
        lambda q, cache, k, v: (
            ragged.run(q, k, v, v_scale=0.5),
            decode.run(q[:2], cache, return_lse=True)[1],
        )
    )
    for window in (-1, 3, 5):
        decode.plan(*batch.pages.table, *SIZES, PAGE, window_left=window, **FP32)
        plan_ragged(batch, ragged, window_left=window)
        expected = (
            ragged.run(batch.q, *dense(batch), v_scale=0.5),
            decode.run(batch.q[:2], batch.fused, return_lse=True)[1],
        )
        assert equal(call(batch.q, batch.fused, *dense(batch)), expected)
    assert counter.frame_count == 1


def test_results_partial_states_and_tensor_scales_in_a_graph(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    state = (torch.randn(8, HEADS, DIM), torch.randn(8, HEADS))

    def into(q: torch.Tensor, cache: torch.Tensor, out: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
        wrapper.run(q, cache, out=out, lse=lse, k_scale=torch.tensor(0.5), partial_state=state)
        return out + 1

    results = [(torch.empty_like(batch.q), torch.empty(8, HEADS)) for _ in range(2)]
    call, _ = compiled(into)
    assert equal(call(batch.q, batch.fused, *results[0]), into(batch.q, batch.fused, *results[1]))
    assert equal(results[0], results[1])
    only_out, _ = compiled(lambda q, cache, out: wrapper.run(q, cache, out=out, return_lse=True))
    assert equal(
        only_out(batch.q, batch.fused, results[0][0]), wrapper.run(batch.q, batch.fused, return_lse=True)
    )
    only_lse, _ = compiled(lambda q, cache, lse: wrapper.run(q, cache, lse=lse))
    assert equal(only_lse(batch.q, batch.fused, results[0][1]), wrapper.run(batch.q, batch.fused))


def test_single_calls_in_a_graph(batch: Batch) -> None:
    def both(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        out, lse = rocade.single_prefill_with_kv_cache(
            q, k, v, causal=True, o_dtype="bfloat16", return_lse=True
        )
        one = rocade.single_decode_with_kv_cache(q[0], k, v, k_scale=scale, window_left=3)
        two = rocade.single_decode_with_kv_cache(q[0], k, v, return_lse=True)
        return out, lse, one, *two, rocade.single_prefill_with_kv_cache(q, k, v)

    given = (batch.q, *dense(batch), torch.tensor(0.5))
    call, counter = compiled(both)
    assert equal(call(*given), both(*given))
    assert counter.frame_count == 1


def test_the_default_compiler_gives_the_same(batch: Batch) -> None:
    wrapper = plan_paged(batch, causal=True)

    def layer(q: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = wrapper.run(q.transpose(0, 1).contiguous().transpose(0, 1) * 1.5, cache, return_lse=True)
        return rocade.merge_state(*first, *wrapper.run(q, cache, return_lse=True))

    got = torch.compile(layer, fullgraph=True)(batch.q, batch.fused)
    for a, b in zip(got, layer(batch.q, batch.fused), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_a_graph_refuses_a_plan_with_another_output(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    given = op_arguments(wrapper, batch.q, batch.fused)
    plan_paged(batch, wrapper, o_data_type="float16")
    with pytest.raises(
        ValueError, match=r"plan: got output torch.float16 with head_dim 16, expected torch.float32"
    ):
        torch.ops.rocade.attend(*given)


def test_a_graph_says_when_its_wrapper_is_gone(batch: Batch) -> None:
    given = op_arguments(plan_paged(batch), batch.q, batch.fused)
    gc.collect()
    with pytest.raises(rocade.NotPlannedError, match="is gone"):
        torch.ops.rocade.attend(*given)


def test_handles_are_never_used_again(batch: Batch) -> None:
    first = plan_paged(batch)._handle
    gc.collect()
    assert plan_paged(batch)._handle > first
    assert first not in _ops._runners


def test_another_output_dtype_is_compiled_anew_and_right(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    call, _ = compiled(lambda q, cache: wrapper.run(q, cache))
    call(batch.q, batch.fused)
    plan_paged(batch, wrapper, o_data_type="bfloat16")
    assert call(batch.q, batch.fused).dtype is torch.bfloat16


def test_what_is_refused_is_refused_in_a_graph_too(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    call, _ = compiled(lambda q, cache: wrapper.run(q[:3], cache))
    with pytest.raises(ValueError, match="q: got shape"):
        call(batch.q, batch.fused)


def test_a_graph_that_wants_gradients_is_refused_and_not_left_without_them(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    states = torch.randn(3, 2, HEADS, DIM), torch.randn(3, 2, HEADS)
    for call, args in (
        (lambda q, cache: wrapper.run(q, cache), (batch.q, batch.fused)),
        (lambda v, s: rocade.merge_states(v, s)[0], states),
    ):
        for at in range(2):
            given = [x.clone().requires_grad_(i == at) for i, x in enumerate(args)]
            graph = torch.compile(call, backend="aot_eager")
            with pytest.raises(Exception, match=r"rocade has no backward: call it under torch.no_grad\(\)"):
                graph(*given).sum().backward()
            with torch.no_grad():
                assert equal(graph(*given), call(*args))


def test_forward_in_a_graph_says_what_to_do_instead(batch: Batch) -> None:
    wrapper = plan_paged(batch)
    call, _ = compiled(lambda q, cache: wrapper.forward(q, cache))
    with pytest.raises(Exception, match=r"call plan\(\), and run\(\) inside torch.compile"):
        call(batch.q, batch.fused)


def test_eager_calls_go_around_the_ops(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("an eager call went through an op")

    monkeypatch.setattr(_ops, "attend", never)
    plan_paged(batch).run(batch.q, batch.fused)
