"""The two shared-prefix wrappers against fp64 attention over prefix and pages as one sequence."""

from __future__ import annotations

import math

import pytest
import torch
from tests.rocade.cascade_cases import HEAD_DIM, PAGE_SIZE, WORKSPACE, Case, make

from rocade.cascade import (
    BatchDecodeWithSharedPrefixPagedKVCacheWrapper as Decode,
)
from rocade.cascade import (
    BatchPrefillWithSharedPrefixPagedKVCacheWrapper as Prefill,
)
from rocade.conformance import oracle

TOLERANCE = {torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
HEADS = 4, 2


def prefix(tokens: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Dense shared K and V in NHD."""
    torch.manual_seed(tokens)
    k, v = torch.randn(2, tokens, HEADS[1], HEAD_DIM).to(dtype)
    return k, v


def expected(case: Case, k: torch.Tensor, v: torch.Tensor, **rules: object) -> oracle.Reference:
    """The fp64 answer: the prefix in front of the last level's keys."""
    shared = oracle.CascadeLevel([0, case.q.shape[0]], [k], [v])
    own = oracle.CascadeLevel(case.qo_indptr[-1], case._rows(case.k, 0), case._rows(case.v, 0))
    return oracle.cascade(case.q, [shared, own], oracle.Rules(**({"scale": HEAD_DIM**-0.5} | rules)))


def check(got: tuple[torch.Tensor, torch.Tensor], reference: oracle.Reference, dtype: torch.dtype) -> None:
    assert got[0].dtype == dtype
    torch.testing.assert_close(got[0].double(), reference.out, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    torch.testing.assert_close(got[1].double(), reference.lse, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("given", [None, "same"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_decode(dtype: torch.dtype, given: str | None, backend: str) -> None:
    case = make(1, 1, dtype=dtype)
    wrapper = Decode(WORKSPACE, backend=backend)
    table = [array[0] for array in case.arrays[1:]]
    wrapper.begin_forward(*table, *HEADS, HEAD_DIM, PAGE_SIZE, data_type=dtype if given else None)
    for tokens in (21, 21, 3, 0):  # the prefix may change without planning again
        k, v = prefix(tokens, dtype)
        got = wrapper.forward(case.q, k, v, (case.k, case.v), return_lse=True)
        check(got, expected(case, k, v), dtype)
        assert torch.equal(wrapper.forward(case.q, k, v, torch.stack((case.k, case.v), 1)), got[0])
    wrapper.end_forward()


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_prefill(dtype: torch.dtype, causal: bool, backend: str) -> None:
    case = make(2, 1, max_rows=5, dtype=dtype)
    wrapper = Prefill(WORKSPACE, backend=backend)
    wrapper.begin_forward(*[array[0] for array in case.arrays], *HEADS, HEAD_DIM, PAGE_SIZE)
    k, v = prefix(19, dtype)
    reference = expected(case, k, v, causal=causal)
    got = wrapper.forward(case.q, k, v, (case.k, case.v), causal=causal)
    check((got, wrapper.run(case.q, k, v, (case.k, case.v), return_lse=True)[1]), reference, dtype)
    got = wrapper.forward(case.q, k, v, (case.k, case.v), causal=causal, sm_scale=0.9)
    reference = expected(case, k, v, causal=causal, scale=0.9)
    check((got, wrapper.run(case.q, k, v, (case.k, case.v), return_lse=True)[1]), reference, dtype)


def test_flags_of_the_plan_count_over_the_prefix_too() -> None:
    case = make(3, 1, max_rows=3)
    k, v = prefix(11, torch.float32)
    wrapper = Prefill(WORKSPACE)
    flags = {"causal": True, "window_left": 14, "logits_soft_cap": 3.0, "q_data_type": "float32"}
    wrapper.plan(*[array[0] for array in case.arrays], *HEADS, HEAD_DIM, PAGE_SIZE, **flags)
    got = wrapper.run(case.q, k, v, (case.k, case.v), k_scale=2.0, v_scale=0.5, return_lse=True)
    rules = {"causal": True, "window_left": 14, "soft_cap": 3.0, "scale": 2 * HEAD_DIM**-0.5, "v_scale": 0.5}
    check(got, expected(case, k, v, **rules), torch.float32)


def test_hnd_out_and_lse() -> None:
    case, (k, v) = make(4, 1), prefix(9, torch.float32)
    table = [array[0] for array in case.arrays[1:]]
    wrapper = Decode(WORKSPACE, "HND")
    wrapper.plan(*table, *HEADS, HEAD_DIM, PAGE_SIZE)
    out = torch.full((case.q.shape[0], HEADS[0], HEAD_DIM), math.nan)
    lse = torch.full((case.q.shape[0], HEADS[0]), math.nan)
    cache = (case.k.transpose(1, 2), case.v.transpose(1, 2))
    assert wrapper.run(case.q, k.transpose(0, 1), v.transpose(0, 1), cache, out=out, lse=lse) is out
    check((out, lse), expected(case, k, v), torch.float32)


def test_malformed_input_is_named() -> None:
    case, (k, v) = make(5, 1), prefix(9, torch.float32)
    table = [array[0] for array in case.arrays[1:]]
    cache = (case.k, case.v)
    wrapper = Decode(WORKSPACE)
    with pytest.raises(RuntimeError, match=r"call plan\(\) before"):
        wrapper.run(case.q, k, v, cache)
    with pytest.raises(ValueError, match=r"^unique_kv_indptr\[0\]: got -1"):
        wrapper.plan(table[0] - 1, *table[1:], *HEADS, HEAD_DIM, PAGE_SIZE)
    with pytest.raises(ValueError, match=r"^num_qo_heads: got 4"):
        wrapper.plan(*table, 4, 3, HEAD_DIM, PAGE_SIZE, data_type="float32")
    wrapper.plan(*table, *HEADS, HEAD_DIM, PAGE_SIZE, data_type="float32")
    for args, message in (
        ((case.q, k[0], v, cache), r"^k_shared: got \[2, 16\]"),
        ((case.q, k, v[1:], cache), r"^v_shared: got NHD shape"),
        ((case.q, k.half(), v.half(), cache), r"^k_shared: got torch.float16"),
        ((case.q.half(), k, v, cache), r"^q: got torch.float16"),
        ((case.q, k, v, (case.k[:1], case.v[:1])), r"^unique_kv_cache: got 1 pages"),
    ):
        with pytest.raises(ValueError, match=message):
            wrapper.run(*args)
    with pytest.raises(NotImplementedError, match="use_fp16_qk_reduction"):
        Prefill(WORKSPACE).forward(case.q, k, v, cache, use_fp16_qk_reduction=True)


def test_compiled_run_follows_the_prefix() -> None:
    case = make(6, 1)
    wrapper = Decode(WORKSPACE)
    wrapper.plan(*[array[0] for array in case.arrays[1:]], *HEADS, HEAD_DIM, PAGE_SIZE, data_type="float32")
    torch.compiler.reset()
    compiled = torch.compile(
        lambda k, v: wrapper.run(case.q, k, v, (case.k, case.v), return_lse=True),
        fullgraph=True,
        backend="eager",
    )
    for tokens in (5, 8):
        k, v = prefix(tokens, torch.float32)
        check(compiled(k, v), expected(case, k, v), torch.float32)
