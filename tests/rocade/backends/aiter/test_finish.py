"""After AITER's kernel: LSE in log2, rows without keys, the scale of v."""

from __future__ import annotations

import math

import pytest
import torch

from rocade._plan import KV, RunArgs
from rocade.backends.aiter._finish import finish

T, H, D = 5, 3, 8


def run_args(lse: torch.Tensor | None, v_scale: float = 1.0) -> RunArgs:
    q = torch.zeros(T, H, D)
    return RunArgs(q, (KV(q, q),), torch.full((T, H, D), torch.nan), lse, 1.0, v_scale)


@pytest.mark.parametrize("with_lse", [False, True])
def test_everything_at_once(with_lse: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    raw = torch.randn(T, H, D, generator=generator)
    natural = torch.randn(T, H, generator=generator)
    unseen = torch.tensor([0, 3])
    lse = torch.full((T, H), torch.nan) if with_lse else None
    args = run_args(lse, 0.5)
    given = natural.t().contiguous()
    given[:, unseen] = torch.inf  # as AITER leaves them
    out = raw.clone()
    out[unseen] = torch.nan
    finish(args, out, given if with_lse else None, unseen)

    expected = raw * 0.5
    expected[unseen] = 0.0
    assert args.out.equal(expected)
    if lse is not None:
        wanted = natural.double() / math.log(2.0)
        wanted[unseen] = -torch.inf
        torch.testing.assert_close(lse.double(), wanted, rtol=1e-6, atol=1e-6)


def test_rows_without_keys_are_zero_with_an_empty_lse() -> None:
    args = run_args(torch.full((T, H), torch.nan))
    finish(args, torch.full((T, H, D), torch.nan), torch.full((H, T), torch.nan), torch.arange(T))
    assert (args.out == 0).all()
    assert args.lse is not None
    assert (args.lse == -torch.inf).all()


def test_results_in_place_are_not_copied() -> None:
    args = run_args(None)
    args.out.fill_(2.0)
    finish(args, args.out, None, None)
    assert (args.out == 2).all()
