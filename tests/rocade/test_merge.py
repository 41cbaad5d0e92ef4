"""Merging and summing attention states: fp64 values, empty states, strides, operators, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from rocade import cascade

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
INF = float("inf")
# One rounding of the result; inputs are taken as they are.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
ROWS, SETS, HEADS, DIM = 7, 5, 3, 40


def states(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """A random state; about a quarter of its rows are empty, with NaN where no value is."""
    v, s = torch.randn(*shape, dtype=dtype), torch.randn(shape[:-1]) * 20
    empty = torch.rand(shape[:-1]) < 0.25
    return v.masked_fill(empty[..., None], math.nan), s.masked_fill(empty, -INF)


def reference(v: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge over dim 0 in fp64, row by row."""
    weight = torch.exp2(s.double() - s.double().amax(0).nan_to_num(neginf=0.0))
    total = weight.sum(0)
    part = (v.double().nan_to_num(nan=0.0) * weight[..., None]).sum(0)
    merged = part / total.masked_fill(total == 0, 1.0)[..., None]
    return merged, s.double().amax(0).nan_to_num(neginf=0.0) + total.log2()


def check(
    got: tuple[torch.Tensor, torch.Tensor], v: torch.Tensor, s: torch.Tensor, dtype: torch.dtype
) -> None:
    """Compare a state with fp64 values."""
    assert got[0].dtype == dtype
    assert got[1].dtype == torch.float32
    torch.testing.assert_close(got[0].double(), v, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    torch.testing.assert_close(got[1].double(), s, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [1, 3, 128])
def test_merge_state(heads: int, dtype: torch.dtype, backend: str) -> None:
    v, s = states(2, ROWS, heads, DIM, dtype=dtype)
    check(cascade.merge_state(v[0], s[0], v[1], s[1], backend=backend), *reference(v, s), dtype)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_merge_states(dtype: torch.dtype, backend: str) -> None:
    v, s = states(ROWS, SETS, HEADS, DIM, dtype=dtype)
    check(
        cascade.merge_states(v, s, backend=backend), *reference(v.transpose(0, 1), s.transpose(0, 1)), dtype
    )


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_merge_state_in_place(dtype: torch.dtype, backend: str) -> None:
    v, s = states(2, ROWS, HEADS, DIM, dtype=dtype)
    expected = reference(v, s)
    assert cascade.merge_state_in_place(v[0], s[0], v[1], s[1], backend=backend) is None
    check((v[0], s[0]), *expected, dtype)


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.uint8])
def test_masked_rows_keep_their_bits(mask_dtype: torch.dtype) -> None:
    v, s = states(2, ROWS, HEADS, DIM)
    mask = torch.tensor([1, 0, 1, 1, 0, 0, 1]).to(mask_dtype)
    twin = cascade.merge_state(v[0], s[0], v[1], s[1], mask=mask)
    old_v, old_s, (new_v, new_s) = v[0].clone(), s[0].clone(), reference(v, s)
    cascade.merge_state_in_place(v[0], s[0], v[1], s[1], mask)
    torch.testing.assert_close(twin, (v[0], s[0]), rtol=0, atol=0, equal_nan=True)
    for row in range(ROWS):
        if mask[row]:
            check((v[0, row], s[0, row]), new_v[row], new_s[row], torch.float32)
        else:
            assert torch.equal(v[0, row].view(torch.int32), old_v[row].view(torch.int32))
            assert torch.equal(s[0, row], old_s[row])


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_variable_length_merge_states(dtype: torch.dtype, backend: str) -> None:
    indptr = torch.tensor([2, 2, 3, 9, 9, 12], dtype=torch.int32)
    v, s = states(14, HEADS, DIM, dtype=dtype)
    got = cascade.variable_length_merge_states(v, s, indptr, backend=backend)
    rows = [
        reference(v[a:b], s[a:b])
        if b > a
        else (torch.zeros(HEADS, DIM).double(), torch.full((HEADS,), -INF).double())
        for a, b in pairwise(indptr.tolist())
    ]
    check(got, torch.stack([r[0] for r in rows]), torch.stack([r[1] for r in rows]), dtype)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_round_once(dtype: torch.dtype, backend: str) -> None:
    v = torch.randn(ROWS, 300, HEADS, DIM, dtype=dtype)
    got = cascade.attention_sum(v, backend=backend)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), v.double().sum(1), rtol=TOLERANCE[dtype], atol=1e-4)
    indptr = torch.tensor([0, 300, 300, 301, 1200], dtype=torch.int32)
    flat = v.flatten(0, 1)[:1300]
    got = cascade.variable_length_attention_sum(flat, indptr, backend=backend)
    expected = torch.stack([flat[a:b].double().sum(0) for a, b in pairwise(indptr.tolist())])
    torch.testing.assert_close(got.double(), expected, rtol=TOLERANCE[dtype], atol=1e-4)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_two_empty_states_stay_empty(backend: str) -> None:
    v, s = torch.full((1, 1, 64), math.nan, dtype=torch.float16), torch.full((1, 1), -INF)
    many_v, many_s = v[:, None].expand(1, 4, 1, 64), s[:, None].expand(1, 4, 1)
    ranges = torch.tensor([0, 4], dtype=torch.int32)
    in_place = v.clone(), s.clone()
    cascade.merge_state_in_place(*in_place, v, s, backend=backend)
    for got_v, got_s in (
        cascade.merge_state(v, s, v, s, backend=backend),
        cascade.merge_states(many_v, many_s, backend=backend),
        cascade.merge_states(many_v[:, :0], many_s[:, :0], backend=backend),
        cascade.variable_length_merge_states(many_v[0], many_s[0], ranges, backend=backend),
        cascade.variable_length_merge_states(v[:0], s[:0], ranges * 0, backend=backend),
        in_place,
    ):
        assert got_v.eq(0).all()
        assert got_s.eq(-INF).all()


def test_an_empty_state_changes_no_bit() -> None:
    v, s = torch.randn(ROWS, HEADS, DIM), torch.randn(ROWS, HEADS) * 50
    nothing = torch.full_like(v, math.nan), torch.full_like(s, -INF)
    for got in (cascade.merge_state(v, s, *nothing), cascade.merge_state(*nothing, v, s)):
        assert torch.equal(got[0], v)
        assert torch.equal(got[1], s)


def test_huge_and_tiny_lse_do_not_overflow() -> None:
    v, s = torch.ones(2, 1, 1, 8), torch.tensor([[[3.0e38]], [[-3.0e38]]])
    got_v, got_s = cascade.merge_state(v[0], s[0], 2 * v[1], s[1])
    assert got_v.eq(1).all()
    assert got_s.eq(3.0e38).all()


def test_strided_inputs_and_outputs() -> None:
    v, s = states(2, ROWS, HEADS, DIM)
    wide = torch.full((2, ROWS, HEADS + 2, DIM + 8), math.nan)[:, :, 1:-1, :DIM]
    wide_s = torch.full((2, HEADS, ROWS), math.nan).transpose(1, 2)
    wide.copy_(v)
    wide_s.copy_(s)
    out = torch.full((ROWS, HEADS, DIM + 8), math.nan)[..., :DIM], torch.empty(HEADS, ROWS).t()
    expected = cascade.merge_state(v[0], s[0], v[1], s[1])
    got = cascade.merge_state(wide[0], wide_s[0], wide[1], wide_s[1], out=out)
    assert got[0] is out[0]
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
    cascade.merge_state_in_place(wide[0], wide_s[0], wide[1], wide_s[1])
    torch.testing.assert_close((wide[0], wide_s[0]), expected, rtol=0, atol=0)


def test_out_of_every_function() -> None:
    v, s = states(ROWS, SETS, HEADS, DIM)
    v = v.nan_to_num(nan=0.0)
    flat, flat_s, indptr = v.flatten(0, 1), s.flatten(0, 1), torch.arange(0, 36, 5, dtype=torch.int32)

    def new() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((ROWS, HEADS, DIM), math.nan), torch.full((ROWS, HEADS), math.nan)

    for function, args in (
        (cascade.merge_states, (v, s)),
        (cascade.variable_length_merge_states, (flat, flat_s, indptr)),
    ):
        out = new()
        got = function(*args, out=out)
        assert got[0] is out[0]
        assert got[1] is out[1]
        torch.testing.assert_close(out, function(*args), rtol=0, atol=0)
    for function, args in (
        (cascade.attention_sum, (v,)),
        (cascade.variable_length_attention_sum, (flat, indptr)),
    ):
        out = new()[0]
        assert function(*args, out=out) is out
        assert torch.equal(out, function(*args))


def test_results_may_be_state_a_but_no_other_input() -> None:
    v, s = torch.randn(2, ROWS, HEADS, DIM), torch.randn(2, ROWS, HEADS)
    expected = cascade.merge_state(v[0], s[0], v[1], s[1])
    for mask in (None, torch.ones(ROWS, dtype=torch.bool)):
        state = v[0].clone(), s[0].clone()
        cascade.merge_state(*state, v[1], s[1], mask=mask, out=state)
        torch.testing.assert_close(state, expected, rtol=0, atol=0)
    new_v, new_s = torch.empty_like(v[0]), torch.empty_like(s[0])
    shifted = torch.randn(ROWS + 1, HEADS, DIM)
    for message, call in (
        (r"out\[0\]", lambda: cascade.merge_state(v[0], s[0], v[1], s[1], out=(v[1], new_s))),
        (r"out\[1\]", lambda: cascade.merge_state(v[0], s[0], v[1], s[1], out=(new_v, s[1]))),
        (r"out\[0\]", lambda: cascade.merge_state(shifted[1:], s[0], v[1], s[1], out=(shifted[:-1], new_s))),
        (r"out\[0\]", lambda: cascade.merge_states(v[:, :1], s[:, :1], out=(v[:, 0], s[:, 0].clone()))),
        ("out", lambda: cascade.attention_sum(v[:, :1], out=v[:, 0])),
        ("v", lambda: cascade.merge_state_in_place(shifted[1:], new_s, shifted[:-1], s[1])),
        (r"out\[1\]", lambda: cascade.merge_state(v[0], s[0], v[1], s[1], out=(new_v, new_v[:, :, 0]))),
        ("s", lambda: cascade.merge_state_in_place(new_v, new_v[:, :, 0], v[1], s[1])),
    ):
        with pytest.raises(ValueError, match=f"^{message}: got memory of another argument"):
            call()


def test_no_rows_and_no_states() -> None:
    v, s = torch.empty(0, HEADS, DIM), torch.empty(0, HEADS)
    assert cascade.merge_state(v, s, v, s)[0].shape == v.shape
    assert cascade.merge_states(v[:, None], s[:, None])[1].shape == s.shape
    got_v, got_s = cascade.variable_length_merge_states(v, s, torch.zeros(3, dtype=torch.int32))
    assert got_v.eq(0).all()
    assert got_s.eq(-INF).all()
    assert cascade.attention_sum(torch.empty(2, 0, HEADS, DIM)).eq(0).all()


def test_lse_of_another_float_dtype_is_converted_but_never_written() -> None:
    v, s = torch.randn(2, ROWS, HEADS, DIM), torch.randn(2, ROWS, HEADS, dtype=torch.float64)
    got = cascade.merge_state(v[0], s[0], v[1], s[1])
    torch.testing.assert_close(
        got, cascade.merge_state(v[0], s[0].float(), v[1], s[1].float()), rtol=0, atol=0
    )
    with pytest.raises(ValueError, match=r"s: got torch\.float64"):
        cascade.merge_state_in_place(v[0], s[0], v[1], s[1])


V, S = torch.randn(4, 2, 8), torch.randn(4, 2)
BAD = {
    "v_a: got torch.float32 \\[4, 2\\]": lambda: cascade.merge_state(S, S, V, S),
    "v_a: got torch.int32": lambda: cascade.merge_state(V.int(), S, V, S),
    "v_b: got .*float16": lambda: cascade.merge_state(V, S, V.half(), S),
    "v_b: got .*\\[3, 2, 8\\]": lambda: cascade.merge_state(V, S, V[:3], S),
    "s_b: got torch.float32 \\[3, 2\\]": lambda: cascade.merge_state(V, S, V, S[:3]),
    "s_a: got torch.int32": lambda: cascade.merge_state(V, S.int(), V, S),
    "v_b: got stride": lambda: cascade.merge_state(V, S, V.transpose(0, 2).contiguous().transpose(0, 2), S),
    "out\\[1\\]: got torch.float16": lambda: cascade.merge_state(V, S, V, S, out=(V.clone(), S.half())),
    "out: got Tensor": lambda: cascade.merge_state(V, S, V, S, out=V),
    "v: got strides": lambda: cascade.merge_state_in_place(V[:1].expand(4, 2, 8), S.clone(), V, S),
    "mask: got \\[3\\]": lambda: cascade.merge_state_in_place(
        V, S, V + 1, S + 1, torch.ones(3, dtype=torch.bool)
    ),
    "mask: got torch.float32": lambda: cascade.merge_state_in_place(V, S, V + 1, S + 1, torch.ones(4)),
    "v: got torch.float32 \\[4, 2, 8\\]": lambda: cascade.merge_states(V, S),
    "s: got .*\\[4, 2\\]": lambda: cascade.merge_states(V[:, None], S),
    "indptr\\[-1\\]: got 5": lambda: cascade.variable_length_merge_states(V, S, torch.tensor([0, 5])),
    "indptr\\[1\\]: got 1": lambda: cascade.variable_length_attention_sum(V, torch.tensor([2, 1])),
    "indptr: got torch.float32": lambda: cascade.variable_length_attention_sum(V, torch.tensor([0.0])),
    "out: got .*\\[4, 2, 8\\]": lambda: cascade.attention_sum(V[None], out=V.clone()),
    "backend: got 'fastest'": lambda: cascade.merge_state(V, S, V, S, backend="fastest"),
    "v_a: got a tensor that requires grad": lambda: cascade.merge_state(V.clone().requires_grad_(), S, V, S),
    "s_b: got a tensor that requires grad": lambda: cascade.merge_state(V, S, V, S.clone().requires_grad_()),
    "out\\[0\\]: got strides \\[8, 8, 1\\]": lambda: cascade.merge_state(
        V, S, V, S, out=(torch.empty(48).as_strided((4, 2, 8), (8, 8, 1)), S.clone())
    ),
    "out\\[1\\]: got strides \\[1, 1\\]": lambda: cascade.merge_state(
        V, S, V, S, out=(V.clone(), torch.empty(5).as_strided((4, 2), (1, 1)))
    ),
    "out\\[1\\]: got a lazily negated view": lambda: cascade.merge_state(
        V, S, V, S, out=(V.clone(), torch._neg_view(S.clone()))
    ),
    "s: got a lazily negated view": lambda: cascade.merge_state_in_place(
        V.clone(), torch._neg_view(S.clone()), V, S
    ),
    "out: got a tensor that requires grad": lambda: cascade.attention_sum(
        V[:, None], out=V.clone().requires_grad_()
    ),
    "head_dim: got 0": lambda: cascade.merge_states(torch.empty(4, 1, 2, 0), S[:, None]),
    "v_b: got a lazily negated view": lambda: cascade.merge_state(V, S, torch._neg_view(V), S),
}


@pytest.mark.parametrize("message", BAD)
def test_malformed_input_is_named(message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        BAD[message]()


OPS = torch.ops.rocade
SAMPLES: dict[str, Callable[[], tuple[object, ...]]] = {
    "merge_state": lambda: (V, S, V, S, None, "auto"),
    "merge_state_out": lambda: (V, S, V, S, None, V.clone(), S.clone(), "auto"),
    "merge_state_in_place": lambda: (V.clone(), S.clone(), V, S, torch.ones(4, dtype=torch.bool), "auto"),
    "merge_states": lambda: (V[:, None], S[:, None], "auto"),
    "merge_states_out": lambda: (V[:, None], S[:, None], V.clone(), S.clone(), "auto"),
    "variable_length_merge_states": lambda: (V, S, torch.tensor([0, 1, 4]), "auto"),
    "variable_length_merge_states_out": lambda: (
        V,
        S,
        torch.tensor([0, 4]),
        V[:1].clone(),
        S[:1].clone(),
        "auto",
    ),
    "attention_sum": lambda: (V[:, None], "auto"),
    "attention_sum_out": lambda: (V[:, None], V.clone(), "auto"),
    "variable_length_attention_sum": lambda: (V, torch.tensor([0, 1, 4]), "auto"),
    "variable_length_attention_sum_out": lambda: (V, torch.tensor([0, 4]), V[:1].clone(), "auto"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_operators_pass_opcheck(name: str) -> None:
    torch.library.opcheck(getattr(OPS, name).default, SAMPLES[name]())


def test_compiled_functions_equal_eager_ones() -> None:
    def work(
        v: torch.Tensor, s: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        v, s = cascade.merge_state(v, s, v_b, s_b)
        v, s = v * 2, s + 1
        cascade.merge_state_in_place(v, s, v_b, s_b)
        pair = cascade.merge_states(torch.stack((v, v_b), 1), torch.stack((s, s_b), 1))
        indptr = torch.tensor([0, 1, 3], dtype=torch.int32)
        return (
            *pair,
            *cascade.variable_length_merge_states(v, s, indptr),
            cascade.attention_sum(torch.stack((v, v_b), 1)),
            cascade.variable_length_attention_sum(v, indptr, out=torch.empty_like(v[:2])),
        )

    torch.compiler.reset()
    compiled = torch.compile(work, fullgraph=True, backend="aot_eager")
    v, s = states(2, ROWS, HEADS, DIM)
    args = (v[0].nan_to_num(), s[0], v[1].nan_to_num(), s[1])
    torch.testing.assert_close(compiled(*args), work(*args), rtol=0, atol=0)
