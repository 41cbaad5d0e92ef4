"""What a backend is: a name, whether it is present, and one method per kind of operation.

What a backend accepts is a row of `arch_caps`; dispatch has asked it before any method here is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from arch_caps import Reason, Request
from rocade._place import Place
from rocade._plan import Plan
from rocade._problem import Problem


class Backend(Protocol):
    """One implementation. Methods get checked tensors and preallocated results."""

    name: str

    def absent(self, place: Place) -> list[Reason]:
        """Why this process cannot run it at a place (library not built, no driver); empty means it can."""

    def refuses(self, request: Request, place: Place) -> Sequence[Reason]:
        """What this machine adds to the table's answer: a part that is not there, or was found wrong here.

        Asked at every plan of what the table accepts, so it measures, builds and waits for nothing.
        """

    def versions(self, place: Place) -> dict[str, str]:
        """Names and versions of what its results depend on besides rocade and torch, for records of a run."""

    def plan(self, request: Request, problem: Problem) -> Plan:
        """Plan any attention op. Host arithmetic only."""

    def merge_states(
        self, v: torch.Tensor, s: torch.Tensor, v_out: torch.Tensor, s_out: torch.Tensor
    ) -> None:
        """Merge `v [n, S, H, D]`, `s [n, S, H]` over S into `v_out [n, H, D]`, `s_out [n, H]`; S may be 0."""

    def merge_state(
        self,
        v_a: torch.Tensor,
        s_a: torch.Tensor,
        v_b: torch.Tensor,
        s_b: torch.Tensor,
        v_out: torch.Tensor,
        s_out: torch.Tensor,
    ) -> None:
        """Merge two states `[n, H, D]`, `[n, H]`; the result may alias the first."""

    def merge_state_in_place(
        self,
        v: torch.Tensor,
        s: torch.Tensor,
        v_other: torch.Tensor,
        s_other: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> None:
        """Merge the other state into `v`, `s`; rows whose `mask [n]` is 0 keep their value."""

    def variable_length_merge_states(
        self,
        v: torch.Tensor,
        s: torch.Tensor,
        indptr: torch.Tensor,
        v_out: torch.Tensor,
        s_out: torch.Tensor,
    ) -> None:
        """Row i of the result merges rows `indptr[i]:indptr[i + 1]` of `v [nnz, H, D]`, `s [nnz, H]`."""

    def attention_sum(self, v: torch.Tensor, v_out: torch.Tensor) -> None:
        """Plain sum of `v [n, S, H, D]` over S, fp32 to the end."""

    def variable_length_attention_sum(
        self, v: torch.Tensor, indptr: torch.Tensor, v_out: torch.Tensor
    ) -> None:
        """Plain sums of row ranges of `v [nnz, H, D]`."""

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
        """Write `key, value [nnz, Hkv, D]` into NHD cache views; a batch index of -1 is skipped."""
