"""`TorchBackend`: the methods of `Backend`, each one call into the module that does it."""

from __future__ import annotations

import torch

from arch_caps import Reason, Request
from rocade._place import Place
from rocade._plan import Plan
from rocade._problem import Problem
from rocade.backends.torch import _states
from rocade.backends.torch._append import append
from rocade.backends.torch._plan import TorchPlan


class TorchBackend:
    """Plain PyTorch operators: present wherever torch is."""

    name = "torch"

    def absent(self, place: Place) -> list[Reason]:
        """Nothing can be missing."""
        return []

    def refuses(self, request: Request, place: Place) -> tuple[Reason, ...]:
        """Nothing beyond the table."""
        return ()

    def versions(self, place: Place) -> dict[str, str]:
        """Nothing."""
        return {}

    def plan(self, request: Request, problem: Problem) -> Plan:
        """Plan any attention op."""
        return TorchPlan(request, problem)

    @torch.no_grad()
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
        _states.merge_pair_into(v_a, s_a, v_b, s_b, v_out, s_out)

    @torch.no_grad()
    def merge_state_in_place(
        self,
        v: torch.Tensor,
        s: torch.Tensor,
        v_other: torch.Tensor,
        s_other: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> None:
        """Merge the other state into `v`, `s` where `mask` is not 0."""
        _states.merge_pair_in_place(v, s, v_other, s_other, mask)

    @torch.no_grad()
    def merge_states(
        self, v: torch.Tensor, s: torch.Tensor, v_out: torch.Tensor, s_out: torch.Tensor
    ) -> None:
        """Merge `v [n, S, H, D]`, `s [n, S, H]` over S."""
        _states.merge_sets(v, s, v_out, s_out)

    @torch.no_grad()
    def variable_length_merge_states(
        self,
        v: torch.Tensor,
        s: torch.Tensor,
        indptr: torch.Tensor,
        v_out: torch.Tensor,
        s_out: torch.Tensor,
    ) -> None:
        """Merge row ranges of `v [nnz, H, D]`, `s [nnz, H]`."""
        _states.merge_ranges(v, s, indptr, v_out, s_out)

    @torch.no_grad()
    def attention_sum(self, v: torch.Tensor, v_out: torch.Tensor) -> None:
        """Sum `v [n, S, H, D]` over S."""
        _states.sum_sets(v, v_out)

    @torch.no_grad()
    def variable_length_attention_sum(
        self, v: torch.Tensor, indptr: torch.Tensor, v_out: torch.Tensor
    ) -> None:
        """Sum row ranges of `v [nnz, H, D]`."""
        _states.sum_ranges(v, indptr, v_out)

    @torch.no_grad()
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
        append(key, value, batch_indices, positions, k_cache, v_cache, kv_indices, kv_indptr)
