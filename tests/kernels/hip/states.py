"""Attention states for the tests of HIP kernels, and what a merged one must be."""

from __future__ import annotations

import torch
from tests.kernels.hip.emulated import DTYPES

from arch_caps import DType
from rocade.conformance import oracle_states, tolerances

NEG_INF = float("-inf")
Pair = tuple[torch.Tensor, torch.Tensor]


def random_state(dtype: str, *shape: int) -> Pair:
    """`v [*shape]` and `s [*shape[:-1]]`, with weights a few powers of two apart. Each call is different."""
    v = torch.randn(shape).to(DTYPES[dtype])
    return v, torch.randn(shape[:-1]) * 3


def poisoned(state: Pair, share: float) -> Pair:
    """A share of the states has no keys: lse -inf, and NaN for values."""
    v, s = (x.clone() for x in state)
    empty = torch.rand(s.shape) < share
    v[empty], s[empty] = float("nan"), NEG_INF
    return v, s


def padded(state: Pair, storage: str, fill: float | None = None) -> Pair:
    """The state in other memory: heads in front of rows, rows with NaN beside them, or at odd addresses."""
    v, s = state
    if storage == "permuted":
        v_new = v.transpose(0, 1).contiguous().transpose(0, 1)
        s_new = s.transpose(0, 1).contiguous().transpose(0, 1)
    else:
        beside = {"padded": 8, "odd": 3}[storage]
        v_new = torch.full((*v.shape[:-1], v.shape[-1] + beside), float("nan"), dtype=v.dtype)
        first = beside % 8  # the padded one is aligned to packs of 16 bytes, the odd one to elements only
        v_new = v_new[..., first : first + v.shape[-1]].copy_(v)
        s_new = torch.full((*s.shape, 3), float("nan"))[..., 1].copy_(s)
    if fill is not None:
        v_new.fill_(fill)
        s_new.fill_(fill)
    return v_new, s_new


def assert_state(got: Pair, wanted: oracle_states.MergedState, dtype: str) -> None:
    """Every element within what rounding explains."""
    allowed = tolerances.merge(wanted, DType(dtype))
    for name, actual, expected, tolerance in zip("vs", got, wanted[:2], allowed, strict=True):
        excess, where = tolerances.largest_excess(actual, expected, tolerance)
        assert excess <= 1, f"{name} {where}"


def assert_sum(got: torch.Tensor, wanted: tuple[torch.Tensor, torch.Tensor], dtype: str, terms: int) -> None:
    """Every element within what rounding explains; `wanted` is the sum and that of magnitudes."""
    allowed = tolerances.plain_sum(*wanted, DType(dtype), terms)
    excess, where = tolerances.largest_excess(got, wanted[0], allowed)
    assert excess <= 1, where
