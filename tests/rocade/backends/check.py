"""Compares a backend's result with the oracle, in units of what the arithmetic may lose."""

from __future__ import annotations

import torch

from rocade._plan import State
from rocade.conformance.oracle import Reference

EPS32 = 2.0**-24


def assert_close(got: State, want: Reference, *, eps: float = EPS32) -> None:
    """fp32 logits and sums, then one rounding of the result to a type with unit roundoff `eps`."""
    assert torch.isfinite(got.out).all(), "result is not finite"
    out = got.out.to(torch.float64)
    # An error of one logit scales its weight; a few roundings of logit size, and of the sums.
    logit = 4 * EPS32 * (want.logit_mass + 8)
    bound = want.out_mass * (2 * logit[..., None] + 64 * EPS32) + 1.5 * eps * out.abs() + 1e-30
    worst = ((out - want.out).abs() / bound).max() if out.numel() else torch.tensor(0.0)
    assert worst <= 1, f"out is off by {float(worst):.2f} times the bound"
    empty = want.lse == float("-inf")
    assert (got.lse[empty] == float("-inf")).all()
    assert (got.out[empty] == 0).all()
    error = (got.lse.to(torch.float64) - want.lse)[~empty].abs()
    limit = (1.5 * logit + 32 * EPS32 + 2 * EPS32 * want.lse.abs())[~empty]
    assert (error <= limit).all(), f"lse is off by {float((error / limit).max()):.2f} times the bound"
