"""`CpuBackend`: the methods of `Backend`, each one call into the native library."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from arch_caps import Reason, Request
from rocade._place import Place
from rocade._plan import Plan
from rocade._problem import Problem
from rocade.backends.cpu import _states
from rocade.backends.cpu._plan import CpuPlan
from rocade_kernels import _native, cpu_threads
from rocade_kernels._cache import BuildError


@functools.cache
def _join_torch_threads() -> None:
    """Once a process: run on the threads that PyTorch's own operators run on, where those are OpenMP's."""
    if torch.backends.openmp.is_available():  # type: ignore[no-untyped-call]
        cpu_threads.join_openmp(prefer=Path(torch.__file__).parents[1])


class CpuBackend:
    """Native kernels for CPU tensors: present where the library is, or can be built."""

    name = "cpu"

    def absent(self, place: Place) -> list[Reason]:
        """Why there is no library, if there is none."""
        try:
            _native.library()
        except BuildError as error:
            return [Reason("absent", str(error), "rocade_kernels")]
        _join_torch_threads()
        return []

    def refuses(self, request: Request, place: Place) -> tuple[Reason, ...]:
        """Nothing beyond the table."""
        return ()

    def versions(self, place: Place) -> dict[str, str]:
        """Nothing."""
        return {}

    def plan(self, request: Request, problem: Problem) -> Plan:
        """Plan any attention op."""
        return CpuPlan(request, problem)

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
        _states.merge_pairs(v_a, s_a, v_b, s_b, v_out, s_out)

    def merge_state_in_place(
        self,
        v: torch.Tensor,
        s: torch.Tensor,
        v_other: torch.Tensor,
        s_other: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> None:
        """Merge the other state into `v`, `s` where `mask` is not 0."""
        _states.merge_pairs(v, s, v_other, s_other, v, s, mask)

    def merge_states(
        self, v: torch.Tensor, s: torch.Tensor, v_out: torch.Tensor, s_out: torch.Tensor
    ) -> None:
        """Merge `v [n, S, H, D]`, `s [n, S, H]` over S."""
        _states.merge_lists(v.flatten(0, 1), s.flatten(0, 1), v_out, s_out, indptr=None, fixed=v.shape[1])

    def variable_length_merge_states(
        self,
        v: torch.Tensor,
        s: torch.Tensor,
        indptr: torch.Tensor,
        v_out: torch.Tensor,
        s_out: torch.Tensor,
    ) -> None:
        """Merge row ranges of `v [nnz, H, D]`, `s [nnz, H]`."""
        _states.merge_lists(v, s, v_out, s_out, indptr=indptr.contiguous())

    def attention_sum(self, v: torch.Tensor, v_out: torch.Tensor) -> None:
        """Sum `v [n, S, H, D]` over S."""
        _states.merge_lists(v.flatten(0, 1), None, v_out, None, indptr=None, fixed=v.shape[1])

    def variable_length_attention_sum(
        self, v: torch.Tensor, indptr: torch.Tensor, v_out: torch.Tensor
    ) -> None:
        """Sum row ranges of `v [nnz, H, D]`."""
        _states.merge_lists(v, None, v_out, None, indptr=indptr.contiguous())

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
        _states.append(key, value, batch_indices, positions, k_cache, v_cache, kv_indices, kv_indptr)
