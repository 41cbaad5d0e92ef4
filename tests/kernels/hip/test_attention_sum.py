"""attention_sum in the emulator against the fp64 oracle: lists of both kinds, slices, strides, schedules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.kernels.hip import emulated
from tests.kernels.hip.emulated import DTYPES, SCHEDULES, TARGETS
from tests.kernels.hip.states import assert_sum, padded, random_state

from rocade.conformance import oracle_states

INDPTR = [2, 2, 3, 12, 12, 16, 21, 40]


def added(
    target: str, dtype: str, v: torch.Tensor, indptr: list[int] | None, slices: int, **options: Any
) -> torch.Tensor:
    """Add up lists `[n, S, H, D]`, or those that indptr cuts `[m, H, D]` into."""
    rows = v.shape[0] if indptr is None else len(indptr) - 1
    out = torch.full((rows, *v.shape[-2:]), float("nan"), dtype=v.dtype)
    array = None if indptr is None else torch.tensor(indptr, dtype=torch.int32)
    program = emulated.program("attention_sum", target, dtype)
    emulated.merge_lists(program, v, None, (out, None), array, slices, **options)
    return out


@pytest.mark.parametrize("options", SCHEDULES)
@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("target", TARGETS)
def test_under_every_schedule(target: str, slices: int, options: dict[str, Any]) -> None:
    v = random_state("bf16", 3, 13, 5, 128)[0]
    out = added(target, "bf16", v, None, slices, **options)
    assert_sum(out, oracle_states.attention_sum(v), "bf16", 13)
    rows = random_state("bf16", 44, 3, 80)[0]
    out = added(target, "bf16", rows, INDPTR, slices, **options)
    assert_sum(out, oracle_states.variable_length_attention_sum(rows, INDPTR), "bf16", 19)


@pytest.mark.parametrize("dim", [8, 72, 512])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_dtype_and_head_size(target: str, dtype: str, dim: int) -> None:
    v = random_state(dtype, 5, 6, 3, dim)[0]
    assert_sum(added(target, dtype, v, None, 2), oracle_states.attention_sum(v), dtype, 6)


@pytest.mark.parametrize("storage", ["permuted", "odd"])
@pytest.mark.parametrize("target", TARGETS)
def test_strides(target: str, storage: str) -> None:
    v, s = random_state("fp16", 15, 4, 64)
    given = padded((v, s), storage)[0].unflatten(0, (3, 5))
    out = padded((v[:3], s[:3]), storage, fill=float("nan"))[0]
    program = emulated.program("attention_sum", target, "fp16")
    emulated.merge_lists(program, given, None, (out, None), slices=1)
    assert_sum(out, oracle_states.attention_sum(v.unflatten(0, (3, 5))), "fp16", 5)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_to_add_is_zero(target: str) -> None:
    v = random_state("fp16", 3, 0, 2, 16)[0]
    assert not added(target, "fp16", v, None, 1).any()
