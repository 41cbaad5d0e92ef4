"""Numbers that nobody hopes for, in the emulator: NaN and overflow stay visible on our GPU kernels."""

from __future__ import annotations

import math

import pytest
import torch

import rocade

everywhere = pytest.mark.parametrize("target", ["gfx942", "gfx950"])
NAN, INF = float("nan"), float("inf")
State = tuple[torch.Tensor, torch.Tensor]


def tensors(rows: int, keys: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    make = torch.Generator().manual_seed(0)
    return tuple(torch.randn(n, h, 64, generator=make).half() for n, h in ((rows, 2), (keys, 1), (keys, 1)))


def attend(
    backend: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    state: State | None = None,
    split: int = 0,
) -> State:
    wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(1 << 20, dtype=torch.uint8), backend=backend
    )
    rows, ends = (torch.tensor([0, len(x)], dtype=torch.int32) for x in (q, k))
    pages, last = torch.arange(len(k), dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    options = {"q_data_type": "float16", "fixed_split_size": split or None}
    wrapper.plan(rows, ends, pages, last, 2, 1, 64, 1, **options)
    out, lse = wrapper.run(q, (k[:, None], v[:, None]), return_lse=True, partial_state=state)
    return out, lse


def assert_same_nan(found: State, wanted: State) -> None:
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=2e-3, equal_nan=True)


@everywhere
@pytest.mark.parametrize("split", [0, 16])
@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("of", ["q", "k"])
@pytest.mark.parametrize("bad", [NAN, INF])
def test_the_lse_of_a_row_that_is_nan_is_nan(target: str, split: int, rows: int, of: str, bad: float) -> None:
    """It was a finite number, which a merge would have taken for a weight."""
    q, k, v = tensors(rows, 50)
    (q if of == "q" else k)[1, 0, 3] = bad
    wanted = attend("torch", q, k, v)
    assert wanted[1].isnan().any()
    with rocade.emulate(target):
        found = attend("hip", q, k, v, split=split)
    assert_same_nan(found, wanted)


@everywhere
@pytest.mark.parametrize("split", [0, 16])
def test_a_partial_state_that_is_nan_makes_its_row_nan(target: str, split: int) -> None:
    q, k, v = tensors(3, 50)
    state = (torch.zeros_like(q), torch.zeros(3, 2))
    state[1][1, 0] = NAN
    wanted = attend("torch", q, k, v, state)
    with rocade.emulate(target):
        found = attend("hip", q, k, v, state, split=split)
    assert wanted[1].isnan().sum() == found[1].isnan().sum() == 1
    assert_same_nan(found, wanted)


@everywhere
@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("sign", [1, -1])
def test_logits_beyond_fp32s_whole_numbers_are_not_taken_for_no_key(
    target: str, rows: int, sign: int
) -> None:
    """Logits of 4e10 are rounded to thousands: all weights of a row may vanish. That was a row of zeros."""
    q, k, v = tensors(rows, 50)
    q.fill_(6e4)
    k.fill_(6e4 * sign)
    mean, logit = v.double().mean(0), sign * 6e4**2 * 64 / 8 * math.log2(math.e)
    with rocade.emulate(target):
        out, lse = attend("hip", q, k, v)
    assert (out.isnan() | (out - mean).abs().le(2e-3)).all()
    assert (lse.isnan() | (lse.double() / logit - 1).abs().le(1e-6)).all()
