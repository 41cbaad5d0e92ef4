"""A cascade level after level, from the last to the first, as `FLASHINFER_HIP_FUSED_CASCADE` asks for.

Without that setting all levels are one list; see `_attention`.
"""

from __future__ import annotations

import torch

from arch_caps import Request
from rocade._plan import RunArgs, State
from rocade._problem import Problem
from rocade.backends.hip import _states
from rocade.backends.hip._attention import AttentionPlan


class LevelPlans:
    """`fused`: a level's kernel merges the state so far into its result; else a merge kernel does."""

    backend = "hip"

    __slots__ = ("_fused", "_plans", "request", "workspace_bytes")

    def __init__(self, request: Request, problem: Problem, *, fused: bool) -> None:
        self.request = request
        self._fused = fused
        self._plans = [AttentionPlan(request, problem, level) for level in range(len(problem.levels))]
        self.workspace_bytes = max(plan.workspace_bytes for plan in self._plans)

    def run(self, args: RunArgs) -> None:
        """Compute attention into `args.out` and `args.lse`."""
        state = args.partial
        for level in reversed(range(len(self._plans))):
            final = State(args.out, args.lse) if level == 0 and args.lse is not None else _new_state(args.out)
            if self._fused or state is None:
                self._run_level(level, args, final, state)
            else:
                other = _new_state(args.out)
                self._run_level(level, args, other, None)
                _states.merge_pair(*other, *state, *final)
            state = final
        if state is not None and state.out is not args.out:
            args.out.copy_(state.out)

    def _run_level(self, level: int, args: RunArgs, to: State, state: State | None) -> None:
        self._plans[level].run(RunArgs(args.q, args.kv, to.out, to.lse, args.sm_scale, args.v_scale, state))


def _new_state(out: torch.Tensor) -> State:
    return State(
        torch.empty_like(out, memory_format=torch.contiguous_format),
        torch.empty(out.shape[:2], dtype=torch.float32, device=out.device),
    )
