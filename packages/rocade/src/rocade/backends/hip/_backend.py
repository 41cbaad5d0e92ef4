"""`HipBackend`: the methods of `Backend`, launches of kernels of our own."""

from __future__ import annotations

import torch

from arch_caps import Reason, Request
from rocade import _settings
from rocade._place import Place
from rocade._plan import Plan
from rocade._problem import Problem
from rocade.backends import _gpu
from rocade.backends.hip import _append, _replay, _states
from rocade.backends.hip._attention import AttentionPlan
from rocade.backends.hip._level_by_level import LevelPlans


class HipBackend:
    """Present where there is a GPU's driver, or the emulator is asked for, and code for the target."""

    name = "hip"
    learn = staticmethod(_replay.learn)  # see rocade._replay

    def absent(self, place: Place) -> list[Reason]:
        """No driver, no device, or no code and no compiler."""
        why = _gpu.missing(place) or _gpu.without_code(place.target)
        return [Reason("absent", why, "rocade_kernels")] if why else []

    def refuses(self, request: Request, place: Place) -> tuple[Reason, ...]:
        """Nothing beyond the table."""
        return ()

    def versions(self, place: Place) -> dict[str, str]:
        """The driver, or the emulator, and where the code is from."""
        return {**_gpu.driver(place), "gpu code": _gpu.origin(place.target)}

    def plan(self, request: Request, problem: Problem) -> Plan:
        """Plan any attention op."""
        fused = _settings.fused_cascade()
        if len(problem.levels) == 1 or fused is None:
            return AttentionPlan(request, problem)
        return LevelPlans(request, problem, fused=fused)

    def merge_state(
        self,
        v_a: torch.Tensor,
        s_a: torch.Tensor,
        v_b: torch.Tensor,
        s_b: torch.Tensor,
        v_out: torch.Tensor,
        s_out: torch.Tensor,
    ) -> None:
        """Merge two states `[n, H, D]`, `[n, H]`."""
        _states.merge_pair(v_a, s_a, v_b, s_b, v_out, s_out)

    def merge_state_in_place(
        self,
        v: torch.Tensor,
        s: torch.Tensor,
        v_other: torch.Tensor,
        s_other: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> None:
        """Merge the other state into `v`, `s` where `mask` is not 0."""
        _states.merge_pair(v, s, v_other, s_other, v, s, mask)

    def merge_states(
        self, v: torch.Tensor, s: torch.Tensor, v_out: torch.Tensor, s_out: torch.Tensor
    ) -> None:
        """Merge `v [n, S, H, D]`, `s [n, S, H]` over S."""
        _states.merge_lists(v, s, v_out, s_out)

    def variable_length_merge_states(
        self,
        v: torch.Tensor,
        s: torch.Tensor,
        indptr: torch.Tensor,
        v_out: torch.Tensor,
        s_out: torch.Tensor,
    ) -> None:
        """Merge row ranges of `v [nnz, H, D]`, `s [nnz, H]`."""
        _states.merge_lists(v, s, v_out, s_out, indptr)

    def attention_sum(self, v: torch.Tensor, v_out: torch.Tensor) -> None:
        """Sum `v [n, S, H, D]` over S."""
        _states.merge_lists(v, None, v_out, None)

    def variable_length_attention_sum(
        self, v: torch.Tensor, indptr: torch.Tensor, v_out: torch.Tensor
    ) -> None:
        """Sum row ranges of `v [nnz, H, D]`."""
        _states.merge_lists(v, None, v_out, None, indptr)

    def append_paged_kv_cache(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        batch_indices: torch.Tensor,
        positions: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        kv_indices: torch.Tensor,
        kv_indptr: torch.Tensor,
    ) -> None:
        """Write tokens into the cache views."""
        _append.append(key, value, batch_indices, positions, k_cache, v_cache, kv_indices, kv_indptr)
