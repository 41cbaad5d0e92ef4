"""Long sums of equal terms: rounding must not pile up in one direction, with any instruction set or plan.

Each equal term is rounded the same way when it is added, so a plain running sum is off by a share of their
number. The bound is the one of the conformance grid: 17 units of the last place, whatever the length.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.kernels import cases
from tests.kernels.cases import Case, Level

from rocade_kernels import _abi, _native
from rocade_kernels.cpu_plans import isa_names

UNIT = 2.0**-24
ALLOWED = 17 * UNIT  # of the value
LSE_ALLOWED = 4 * UNIT  # of 2 + |lse|
DIM = 40  # whole vectors and, at 16 lanes, a tail


def isas() -> list[int]:
    return list(range(len(isa_names())))


def equal_keys(rows: int, keys: int, spread: float = 0.0, **options: Any) -> tuple[Case, np.ndarray]:
    """Attention over `keys` keys with one value; `spread` makes logits rise from key to key, up to that."""
    value = np.random.default_rng(keys).uniform(0.01, 1.0, (1, 2, DIM)).astype(np.float32)
    k = np.zeros((keys, 2, DIM), np.float32)
    k[..., 0] = np.linspace(0.0, spread, keys)[:, None]
    q = np.ones((rows, 2, DIM), np.float32)
    ends = [np.array([0, n], np.int32) for n in (rows, keys)]
    level = Level(*ends, np.array([keys], np.int32), 0, None, k, np.repeat(value, keys, axis=0))
    return Case([level], q, "fp32", 2, **options), value.astype(np.float64)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("rows", [1, 4, 40])  # in place, a block of rows in place, packed
@pytest.mark.parametrize("split", [{"disable_split": 1}, {"fixed_split_size": 128}])
def test_attention(isa: int, rows: int, split: dict[str, int]) -> None:
    keys = 20_000
    case, value = equal_keys(rows, keys, plan_options={"isa": isa, **split})
    out, lse = cases.run(case)
    assert (np.abs(out - value) / value).max() <= ALLOWED
    assert np.abs(lse - math.log2(keys)).max() <= LSE_ALLOWED * (2 + math.log2(keys))


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("rows", [1, 40])
def test_attention_with_a_maximum_that_rises(isa: int, rows: int) -> None:
    case, value = equal_keys(rows, 20_000, spread=20.0, plan_options={"isa": isa, "disable_split": 1})
    out, _ = cases.run(case)
    assert (np.abs(out - value) / value).max() <= ALLOWED


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("rows", [1, 40])
def test_attention_beside_a_value_that_a_mask_hides(isa: int, rows: int) -> None:
    """Tiles with a hidden NaN go another way."""
    masks = [np.ones((rows, 6000), bool)]
    masks[0][:, ::60] = False
    case, value = equal_keys(rows, 6000, masks=masks, plan_options={"isa": isa, "disable_split": 1})
    case.levels[0].v[::60] = np.nan
    out, _ = cases.run(case)
    assert (np.abs(out - value) / value).max() <= ALLOWED


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("rows", [1, 40])
def test_an_infinite_value_is_infinite(isa: int, rows: int) -> None:
    case, _ = equal_keys(rows, 300, plan_options={"isa": isa})
    case.levels[0].v[7, :, 3] = np.inf
    out, _ = cases.run(case)
    assert np.isposinf(out[..., 3]).all()
    assert np.isfinite(np.delete(out, 3, axis=-1)).all()


def merged(v: np.ndarray, s: np.ndarray | None, isa: int) -> tuple[np.ndarray, np.ndarray]:
    """All rows of v `[n, H, D]` as one list."""
    n, heads, dim = v.shape
    out, lse = np.full((1, heads, dim), np.nan, np.float32), np.full((1, heads), np.nan, np.float32)
    lists = (0, 0, 0) if s is None else (s.ctypes.data, *cases.strides(s, 2))
    lse_out = (0, 0, 0) if s is None else (lse.ctypes.data, *cases.strides(lse, 2))
    args = _abi.MERGE.pack(
        v.ctypes.data, _abi.FP32, *cases.strides(v, 2), n, *lists, 0, n,
        out.ctypes.data, _abi.FP32, *cases.strides(out, 2), *lse_out,
        1, heads, dim, 1, isa,
    )  # fmt: skip
    assert _native.library().rk_merge(args) == 0
    return out.astype(np.float64), lse


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("states", [15, 16, 17, 1024, 8192])
def test_merges_and_sums(isa: int, states: int) -> None:
    value = np.random.default_rng(states).uniform(0.01, 1.0, (1, 2, DIM)).astype(np.float32)
    v = np.repeat(value, states, axis=0)
    for level in (0.0, 3.3):
        out, lse = merged(v, np.full((states, 2), level, np.float32), isa)
        assert (np.abs(out - value) / value).max() <= ALLOWED
        want = np.float32(level) + math.log2(states)
        assert np.abs(lse - want).max() <= LSE_ALLOWED * (2 + want)
    total, _ = merged(v, None, isa)
    assert (np.abs(total - value.astype(np.float64) * states) / (value * states)).max() <= ALLOWED


@pytest.mark.parametrize("isa", isas())
def test_a_merge_of_many_lists_has_its_own_total_each(isa: int) -> None:
    """States that are empty, infinite or far apart, in lists longer than a group."""
    v = np.random.default_rng(1).normal(size=(100, 2, DIM)).astype(np.float32)
    s = np.linspace(-40, 60, 200).astype(np.float32).reshape(100, 2)
    s[10:60] = -np.inf
    v[10:60] = np.nan
    weight = np.exp2(s.astype(np.float64) - s.max(0))
    want = np.nansum(v * weight[..., None], axis=0) / weight.sum(0)[..., None]
    out, lse = merged(v, s, isa)
    np.testing.assert_allclose(out[0], want, rtol=3e-6, atol=3e-6)
    np.testing.assert_allclose(lse[0], s.max(0) + np.log2(weight.sum(0)), rtol=1e-6)
    empty, lse = merged(v[10:60], s[10:60].copy(), isa)
    assert (empty == 0).all()
    assert np.isneginf(lse).all()
    v[70, :, 5] = np.inf
    assert np.isposinf(merged(v, s, isa)[0][..., 5]).all()
    assert np.isposinf(merged(v[60:], None, isa)[0][..., 5]).all()
