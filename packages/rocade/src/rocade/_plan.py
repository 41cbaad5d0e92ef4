"""What dispatch hands back: a `Plan` that is made once and run many times, and the tensors of one run.

Letters: T query rows, Hq and Hkv heads, D head dims, N pages of the pool, S page size, n dense K/V rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import torch

from arch_caps import Request


class KV(NamedTuple):
    """K and V as NHD views whatever the caller's layout; only the last dimension is contiguous.

    Paged: `[N, S, Hkv, D]`. Dense: `[n, Hkv, D]`.
    """

    k: torch.Tensor
    v: torch.Tensor


class State(NamedTuple):
    """A partial attention result: `out` `[T, Hq, D]` and its fp32 log2-sum-exp `lse` `[T, Hq]`."""

    out: torch.Tensor
    lse: torch.Tensor


@dataclass(slots=True)
class RunArgs:
    """The tensors of one run, checked against the plan. A plan writes `out` and, if it is given, `lse`."""

    q: torch.Tensor  # [T, Hq, Dqk], request.q_dtype, last dimension contiguous
    kv: tuple[KV, ...]  # one per level
    out: torch.Tensor  # [T, Hq, Dvo], request.o_dtype
    lse: torch.Tensor | None  # fp32 [T, Hq]
    sm_scale: float  # request.sm_scale with q_scale and k_scale folded in
    v_scale: float = 1.0  # multiplies the attention result before a partial state is merged in
    partial: State | None = None  # merged into the result as one more KV range


class Source(NamedTuple):
    """Which tensors of a call hold a level's K and V; the same number twice: one tensor `[N, 2, ...]`."""

    level: int
    k: int
    v: int


class Plan(Protocol):
    """A backend's decision for one (Request, Problem)."""

    request: Request
    backend: str
    workspace_bytes: int  # what this plan takes from the caller's workspace, or would

    def run(self, args: RunArgs) -> None:
        """Compute attention into `args.out` and `args.lse`. No host synchronisation, no allocation kept."""


class RepeatablePlan(Plan, Protocol):
    """A plan that can make a run again by what it remembers, which saves the checks and most of the time.

    The tensors of a run are those of the call: q, K and V or caches, out, then lse, then the state that is
    merged in, as far as there are any.
    """

    def is_ready(self) -> bool:
        """Whether another call may use it now: its memory is ready on this stream, and no graph keeps it."""

    def lend_to_graph(self) -> bool:
        """Whether a call that is being captured may `run` it; the plan then stays for the graph's sake.

        Its memory is filled, for certain and not only once earlier work on some stream is done.
        """

    def repeat(self, tensors: Sequence[torch.Tensor], scale: float, v_scale: float) -> bool:
        """Make a run again whose tensors have the shapes, strides, types and devices of an earlier one.

        False, and nothing was done: `run` has to check them, and says what is wrong if something is.
        """

    def learn(self, args: RunArgs, tensors: Sequence[torch.Tensor], sources: Sequence[Source]) -> bool:
        """Remember the run that this thread has just made with `args`; whether it can be repeated."""


def repeatable(plan: Plan) -> RepeatablePlan | None:
    """The plan, if it is one that can repeat."""
    return cast("RepeatablePlan", plan) if hasattr(plan, "repeat") else None
