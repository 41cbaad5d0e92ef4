"""Merging states and sums in the plain backend: the identity rules first, then the oracle."""

from __future__ import annotations

import pytest
import torch

from rocade.backends import REGISTRY
from rocade.conformance import oracle_states as oracle

BACKEND = REGISTRY["torch"]
NAN, EMPTY = float("nan"), float("-inf")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ROUNDING = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def states(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Values `[..., H, D]` and log2-sum-exps `[..., H]`; a quarter of them is empty, with NaN as values."""
    gen = torch.Generator().manual_seed(seed)
    v = torch.randn(shape, generator=gen).to(dtype)
    s = torch.randn(shape[:-1], generator=gen) * 20
    empty = torch.rand(shape[:-1], generator=gen) < 0.25
    return v.masked_fill(empty[..., None], NAN), s.masked_fill(empty, EMPTY)


def assert_merged(v: torch.Tensor, s: torch.Tensor, want: oracle.MergedState) -> None:
    error = (v.double() - want.v).abs()
    assert (error <= ROUNDING[v.dtype] * (want.v_mass + want.v.abs())).all()
    torch.testing.assert_close(s.double(), want.s, rtol=1e-6, atol=1e-6)


def merge_pair(
    a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    v, s = torch.full_like(a[0], NAN), torch.full_like(a[1], NAN)
    BACKEND.merge_state(*a, *b, v, s)
    return v, s


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 2, 8), (1, 1, 1), (37, 3, 24)])
def test_merge_state(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    a, b = states(shape, dtype, 1), states(shape, dtype, 2)
    assert_merged(*merge_pair(a, b), oracle.merge_state(*a, *b))


def test_two_empty_states_make_an_empty_one() -> None:
    v, s = torch.full((2, 3, 4), NAN), torch.full((2, 3), EMPTY)
    got_v, got_s = merge_pair((v, s), (v, s))
    assert (got_v == 0).all()
    assert (got_s == EMPTY).all()


def test_an_empty_state_changes_no_bit() -> None:
    v, s = torch.randn(5, 2, 8), torch.randn(5, 2) * 100
    nothing = torch.full_like(v, NAN), torch.full_like(s, EMPTY)
    for got in (merge_pair((v, s), nothing), merge_pair(nothing, (v, s))):
        assert torch.equal(got[0], v)
        assert torch.equal(got[1], s)


def test_distant_states_do_not_overflow() -> None:
    v_a, v_b = torch.full((1, 1, 1), 2.0), torch.full((1, 1, 1), 3.0)
    got = merge_pair((v_a, torch.full((1, 1), 1e30)), (v_b, torch.full((1, 1), -1e30)))
    assert got[0].item() == 2.0
    assert got[1].item() == pytest.approx(1e30)


def test_the_result_may_be_the_first_state() -> None:
    a, b = states((9, 2, 8), torch.float32, 1), states((9, 2, 8), torch.float32, 2)
    want = merge_pair(a, b)
    BACKEND.merge_state(*a, *b, *a)
    assert torch.equal(a[0], want[0])
    assert torch.equal(a[1], want[1])


@pytest.mark.parametrize("mask_dtype", [None, torch.bool, torch.uint8])
def test_merge_in_place(mask_dtype: torch.dtype | None) -> None:
    a, b = states((9, 2, 8), torch.bfloat16, 1), states((9, 2, 8), torch.bfloat16, 2)
    want_v, want_s = merge_pair(a, b)
    mask = None if mask_dtype is None else (torch.arange(9) % 3 * 5).to(mask_dtype)
    before_v, before_s = a[0].clone(), a[1].clone()
    BACKEND.merge_state_in_place(*a, *b, mask)
    take = torch.ones(9, dtype=torch.bool) if mask is None else mask != 0
    assert torch.equal(a[0][take], want_v[take])
    assert torch.equal(a[1][take], want_s[take])
    assert torch.equal(a[0][~take].view(torch.int16), before_v[~take].view(torch.int16))  # NaN included
    assert torch.equal(a[1][~take], before_s[~take])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sets", [0, 1, 2, 7])
def test_merge_states(sets: int, dtype: torch.dtype) -> None:
    v, s = states((11, sets, 3, 8), dtype)
    v_out, s_out = torch.full((11, 3, 8), NAN, dtype=dtype), torch.full((11, 3), NAN)
    BACKEND.merge_states(v, s, v_out, s_out)
    assert_merged(v_out, s_out, oracle.merge_states(v, s))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_variable_length_merge_states(dtype: torch.dtype, index: torch.dtype) -> None:
    v, s = states((20, 3, 8), dtype)
    indptr = [2, 2, 3, 9, 9, 18]  # rows 0, 1, 18 and 19 belong to nobody
    v_out, s_out = torch.full((5, 3, 8), NAN, dtype=dtype), torch.full((5, 3), NAN)
    BACKEND.variable_length_merge_states(v, s, torch.tensor(indptr, dtype=index), v_out, s_out)
    assert_merged(v_out, s_out, oracle.variable_length_merge_states(v, s, indptr))
    assert (v_out[[0, 3]] == 0).all()
    assert (s_out[[0, 3]] == EMPTY).all()


def test_variable_length_merge_of_nothing() -> None:
    v, s = states((0, 3, 8), torch.float32)
    v_out, s_out = torch.full((2, 3, 8), NAN), torch.full((2, 3), NAN)
    BACKEND.variable_length_merge_states(v, s, torch.zeros(3, dtype=torch.int32), v_out, s_out)
    assert (v_out == 0).all()
    assert (s_out == EMPTY).all()
    BACKEND.variable_length_merge_states(v, s, torch.zeros(1, dtype=torch.int32), v_out[:0], s_out[:0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_stay_in_fp32_to_the_end(dtype: torch.dtype) -> None:
    """300 ones and one big value: a sum in half precision stops growing."""
    v = torch.ones(1, 301, 1, 2, dtype=dtype)
    v[0, 0] = 2048
    out = torch.full((1, 1, 2), NAN, dtype=dtype)
    BACKEND.attention_sum(v, out)
    assert torch.equal(out, torch.full((1, 1, 2), 2348.0).to(dtype))
    ragged = torch.full((3, 1, 2), NAN, dtype=dtype)
    BACKEND.variable_length_attention_sum(v[0], torch.tensor([0, 0, 300, 301]).int(), ragged)
    assert torch.equal(ragged[:, 0, 0], torch.tensor([0.0, 2347.0, 1.0]).to(dtype))


def test_sum_over_no_sets() -> None:
    out = torch.full((4, 3, 8), NAN)
    BACKEND.attention_sum(torch.empty(4, 0, 3, 8), out)
    assert (out == 0).all()
