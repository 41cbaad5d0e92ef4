"""merge_states in the emulator against the fp64 oracle: lists of both kinds, slices, strides, schedules."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.kernels.hip import emulated
from tests.kernels.hip.emulated import DTYPES, SCHEDULES, TARGETS
from tests.kernels.hip.states import NEG_INF, assert_state, padded, poisoned, random_state

import rocade_emulator as emu
from rocade.conformance import oracle_states

Pair = tuple[torch.Tensor, torch.Tensor]
NAN = float("nan")
# Lengths around kBatch and its multiples, none, and lists that do not begin where the one before ends.
INDPTR = [2, 2, 3, 12, 12, 16, 21, 40]


def empty_result(given: Pair, rows: int, dtype: str = "") -> Pair:
    """New memory for `rows` merged rows, NaN so far; `dtype` when it is not that of the values."""
    v = given[0]
    heads, dim = v.shape[-2:]
    return torch.full((rows, heads, dim), NAN, dtype=DTYPES[dtype] if dtype else v.dtype), torch.full(
        (rows, heads), NAN
    )


def merged(target: str, dtype: str, given: Pair, slices: int, **options: Any) -> Pair:
    """Merge fixed lists `[n, S, H, D]`."""
    out = empty_result(given, given[0].shape[0])
    program = emulated.program("merge_states", target, dtype)
    emulated.merge_lists(program, *given, out, slices=slices, **options)
    return out


def merged_lists(
    target: str, dtype: str, given: Pair, indptr: list[int], slices: int, **options: Any
) -> Pair:
    """Merge variable lists of `[m, H, D]`."""
    out = empty_result(given, len(indptr) - 1, dtype)
    program = emulated.program("merge_states", target, dtype)
    array = torch.tensor(indptr, dtype=torch.int32)
    emulated.merge_lists(program, *given, out, array, slices=slices, **options)
    return out


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("slices", [1, 2, 4])
@pytest.mark.parametrize("target", TARGETS)
def test_fixed_lists_under_every_schedule(target: str, slices: int, options: dict[str, Any]) -> None:
    given = random_state("bf16", 3, 13, 5, 128)
    assert_state(merged(target, "bf16", given, slices, **options), oracle_states.merge_states(*given), "bf16")


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("target", TARGETS)
def test_variable_lists_under_every_schedule(target: str, slices: int, options: dict[str, Any]) -> None:
    given = random_state("bf16", 44, 3, 80)
    out = merged_lists(target, "bf16", given, INDPTR, slices, **options)
    assert_state(out, oracle_states.variable_length_merge_states(*given, INDPTR), "bf16")


@pytest.mark.parametrize("dim", [8, 40, 72, 128, 512])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_dtype_and_head_size(target: str, dtype: str, dim: int) -> None:
    given = random_state(dtype, 5, 6, 3, dim)
    assert_state(merged(target, dtype, given, 2), oracle_states.merge_states(*given), dtype)
    rows = given[0].flatten(0, 1), given[1].flatten(0, 1)
    indptr = [0, 9, 9, 10, 30]
    out = merged_lists(target, dtype, rows, indptr, 1)
    assert_state(out, oracle_states.variable_length_merge_states(*rows, indptr), dtype)


@pytest.mark.parametrize("storage", ["permuted", "padded", "odd"])
@pytest.mark.parametrize("target", TARGETS)
def test_strides(target: str, storage: str) -> None:
    given = random_state("fp16", 3, 5, 4, 64)
    v, s = (x.flatten(0, 1) for x in given)
    far_v, far_s = padded((v, s), storage)
    there = far_v.unflatten(0, (3, 5)), far_s.unflatten(0, (3, 5))
    out = padded((v[:3], s[:3]), storage, fill=NAN)
    program = emulated.program("merge_states", target, "fp16")
    emulated.merge_lists(program, *there, out, slices=2)
    assert_state(out, oracle_states.merge_states(*given), "fp16")


@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("target", TARGETS)
def test_states_without_keys_are_left_out_whatever_they_hold(target: str, slices: int) -> None:
    given = poisoned(random_state("bf16", 30, 9, 2, 64), 0.6)
    given[0][4], given[1][4] = NAN, NEG_INF
    given[1][5, :8] = NEG_INF
    given[1][5, 8] = 1.5
    given[0][5, 8] = 0.625
    out = merged(target, "bf16", given, slices)
    assert_state(out, oracle_states.merge_states(*given), "bf16")
    assert not out[0][4].any()
    assert bool((out[1][4] == NEG_INF).all())
    assert bool((out[0][5] == 0.625).all()), "one state alone is copied"
    assert bool((out[1][5] == 1.5).all())


@pytest.mark.parametrize("target", TARGETS)
def test_no_states_at_all(target: str) -> None:
    out = merged(target, "fp32", random_state("fp32", 3, 0, 2, 16), 1)
    assert not out[0].any()
    assert bool((out[1] == NEG_INF).all())


@pytest.mark.parametrize("target", TARGETS)
def test_an_indptr_that_lies_reads_nothing_outside(target: str) -> None:
    given = random_state("bf16", 6, 2, 64)
    out = merged_lists(target, "bf16", given, [-3, 2, 9, 4], 1)
    cut = [(0, 2), (2, 6), (6, 4)]  # to the states that exist; from 6 to 4 there is none
    for row, (begin, end) in enumerate(cut):
        wanted = oracle_states.variable_length_merge_states(*given, [begin, max(begin, end)])
        assert_state((out[0][row : row + 1], out[1][row : row + 1]), wanted, "bf16")


@pytest.mark.parametrize("target", TARGETS)
def test_offsets_beyond_32_bits(target: str) -> None:
    apart = (1 << 32) + 64  # elements between states
    given = random_state("bf16", 2, 3, 2, 64)
    buffer = emu.SparseBuffer(6 * apart * 2)
    far = buffer.torch(torch.bfloat16, (2, 3, 2, 64), (3 * apart, apart, 64, 1)).copy_(given[0])
    wanted = oracle_states.merge_states(*given)
    assert_state(merged(target, "bf16", (far, given[1]), 1), wanted, "bf16")
    rows = buffer.torch(torch.bfloat16, (6, 2, 64), (apart, 64, 1))
    out = merged_lists(target, "bf16", (rows, given[1].flatten(0, 1)), [0, 3, 6], 4)
    assert_state(out, wanted, "bf16")


@pytest.mark.parametrize("target", TARGETS)
def test_slices_change_rounding_only(target: str) -> None:
    given = random_state("fp32", 2, 40, 2, 64)
    results = [merged(target, "fp32", given, slices) for slices in (1, 2, 4)]
    for one, two in pairwise(results):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
    again = merged(target, "fp32", given, 4, schedule="random", seed=9, quantum=40)
    assert torch.equal(results[2][0], again[0]), "same inputs, same bits"


@pytest.mark.parametrize(("count", "units"), [(16, 8), (64, 12), (1024, 4)])
@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("target", TARGETS)
def test_many_equal_states_do_not_drift(target: str, slices: int, count: int, units: int) -> None:
    """Up to 64 states are summed plainly, in groups; the contract allows 17 units."""
    dim = 64
    one = torch.rand(1, 1, 1, dim, generator=torch.Generator().manual_seed(5)) + 0.01
    given = one.expand(1, count, 1, dim).contiguous(), torch.zeros(1, count, 1)
    out, lse = merged(target, "fp32", given, slices)
    unit = 2.0**-24
    assert ((out - one[0]).abs() / one[0]).max() <= units * unit
    assert lse.item() == math.log2(count)


@pytest.mark.parametrize("lses", [(NAN, 0.0), (0.0, NAN), (NAN, NAN), (NAN, NEG_INF), (-NEG_INF, 0.0)])
@pytest.mark.parametrize("target", TARGETS)
def test_an_lse_that_is_no_number_poisons_its_row_alone(target: str, lses: tuple[float, float]) -> None:
    v, s = random_state("fp32", 2, 2, 3, 64)
    s[0] = torch.tensor(lses)[:, None]
    out, lse = merged(target, "fp32", (v, s), 1)
    assert lse[0].isnan().all()
    assert out[0].isnan().all()
    assert_state((out[1:], lse[1:]), oracle_states.merge_states(v[1:], s[1:]), "fp32")
