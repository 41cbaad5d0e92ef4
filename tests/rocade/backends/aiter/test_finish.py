"""After AITER's kernel: LSE in log2, rows without keys, the scale of v, a partial state, in that order."""

from __future__ import annotations

import math

import pytest
import torch

from rocade._plan import KV, RunArgs, State
from rocade.backends.aiter._finish import finish, wants_lse

T, H, D = 5, 3, 8


def run_args(lse: torch.Tensor | None, v_scale: float = 1.0, partial: State | None = None) -> RunArgs:
    q = torch.zeros(T, H, D)
    return RunArgs(q, (KV(q, q),), torch.full((T, H, D), torch.nan), lse, 1.0, v_scale, partial)


def test_the_lse_is_wanted_by_the_caller_or_by_a_partial_state() -> None:
    state = State(torch.zeros(T, H, D), torch.zeros(T, H))
    assert not wants_lse(run_args(None))
    assert wants_lse(run_args(torch.empty(T, H)))
    assert wants_lse(run_args(None, partial=state))


@pytest.mark.parametrize("with_lse", [False, True])
def test_everything_at_once(with_lse: bool) -> None:
    """Expected values are written with exp and log alone, in fp64."""
    generator = torch.Generator().manual_seed(3)
    raw, other = (torch.randn(T, H, D, generator=generator, dtype=torch.float64) for _ in range(2))
    natural, other_lse = (torch.randn(T, H, generator=generator, dtype=torch.float64) for _ in range(2))
    unseen = torch.tensor([0, 3])
    lse = torch.full((T, H), torch.nan) if with_lse else None
    args = run_args(lse, 0.5, State(other.float(), other_lse.float()))
    given = natural.t().float().contiguous()
    given[:, unseen] = torch.inf  # as AITER leaves them
    finish(args, raw.float(), given, unseen)

    mine = natural.exp()
    mine[unseen] = 0.0
    theirs = torch.exp(other_lse * math.log(2.0))
    total = mine + theirs
    expected = (mine[..., None] * raw * 0.5 + theirs[..., None] * other) / total[..., None]
    torch.testing.assert_close(args.out.double(), expected, rtol=1e-5, atol=1e-5)
    if lse is not None:
        torch.testing.assert_close(lse.double(), total.log2(), rtol=1e-5, atol=1e-5)


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
