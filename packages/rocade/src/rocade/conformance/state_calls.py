"""Inputs, public calls and answers for the operations on partial states and for appending to a paged cache.

Letters: n rows, S index sets, H heads, D head dim, nnz packed rows or tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch

import rocade
from arch_caps import DType, Op
from rocade import cascade
from rocade.conformance import inputs as attention_inputs
from rocade.conformance import lengths, memory, oracle_states, tolerances
from rocade.conformance.cases import AppendCase, AttentionCase, DTypes, StateCase

NEG_INF = float("-inf")


class Comparison(NamedTuple):
    """One result beside what it should be."""

    name: str
    actual: torch.Tensor
    expected: torch.Tensor
    allowed: torch.Tensor


@dataclass(frozen=True, slots=True)
class States:
    """`v [n, S, H, D]`, `s [n, S, H]`; variable lengths use the first `counts[i]` sets of row i."""

    v: torch.Tensor
    s: torch.Tensor
    counts: list[int]


def states(case: StateCase, device: torch.device) -> States:
    """Random states. The lse of an empty one is -inf, and garbage in its v must not matter."""
    rng, generator = random.Random(case.index), torch.Generator().manual_seed(case.index)
    shape = (case.rows, case.sets, case.heads)
    v = memory.values((*shape, case.head_dim), case.dtype, 1.0, generator)
    s = (torch.randn(shape, generator=generator) * case.spread).to(memory.TORCH_DTYPES[case.lse_dtype])
    if case.empties != "none":
        hidden = torch.rand(shape, generator=generator) < (1.0 if case.empties == "all" else 0.4)
        s[hidden] = NEG_INF
        v[hidden] = float("nan") if case.empties == "garbage" else 0.0
    counts = [rng.randint(0, case.sets) for _ in range(case.rows)]
    if case.terms == "equal":
        v, s, counts = (
            v[:, :1].expand_as(v).contiguous(),
            s[:, :1].expand_as(s).contiguous(),
            [case.sets] * case.rows,
        )
    return States(_stored(v, case, device), s.to(device), counts)


def _stored(v: torch.Tensor, case: StateCase, device: torch.device) -> torch.Tensor:
    """`v` in its own memory, or inside wider rows filled with NaN."""
    if case.storage == "contiguous":
        return v.to(device)
    wide = memory.full((*v.shape[:-1], v.shape[-1] + memory.PAD), float("nan"), case.dtype, device)
    wide[..., : v.shape[-1]] = v
    return wide[..., : v.shape[-1]]


def _compare_state(
    result: tuple[torch.Tensor, torch.Tensor], ref: oracle_states.MergedState, dtype: DType
) -> list[Comparison]:
    v_tol, s_tol = tolerances.merge(ref, dtype)
    return [Comparison("v", result[0], ref.v, v_tol), Comparison("s", result[1], ref.s, s_tol)]


def _host(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Tensors as the oracle takes them."""
    return tuple(tensor.cpu() for tensor in tensors)


def _merge_state(case: StateCase, given: States, backend: str) -> list[Comparison]:
    parts = (given.v[:, 0], given.s[:, 0], given.v[:, 1], given.s[:, 1])
    result = cascade.merge_state(*parts, backend=backend)
    return _compare_state(result, oracle_states.merge_state(*_host(*parts)), case.dtype)


def _merge_state_in_place(case: StateCase, given: States, backend: str) -> list[Comparison]:
    v, s, other_v, other_s = given.v[:, 0], given.s[:, 0], given.v[:, 1], given.s[:, 1]
    ref = oracle_states.merge_state(*_host(v, s, other_v, other_s))
    mask = None
    if case.mask != "none":
        keep = torch.arange(case.rows) % 2 == 0
        before_v, before_s = _host(v, s)
        ref.v[~keep], ref.s[~keep] = before_v[~keep].double(), before_s[~keep].double()
        ref.v_mass[~keep] = 0.0
        mask = keep.to(v.device, torch.bool if case.mask == "bool" else torch.uint8)
    cascade.merge_state_in_place(v, s, other_v, other_s, mask, backend=backend)
    v_tol, s_tol = tolerances.merge(ref, case.dtype)
    if mask is not None:  # a row that is kept is kept to the bit, NaN included
        kept = mask.cpu() == 0
        v_tol[kept], s_tol[kept] = 0.0, 0.0
        v, ref = v.nan_to_num(7.0), ref._replace(v=ref.v.nan_to_num(7.0))
    return [Comparison("v", v, ref.v, v_tol), Comparison("s", s, ref.s, s_tol)]


def _merge_states(case: StateCase, given: States, backend: str) -> list[Comparison]:
    result = cascade.merge_states(given.v, given.s, backend=backend)
    return _compare_state(result, oracle_states.merge_states(*_host(given.v, given.s)), case.dtype)


def _packed(given: States) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """The first `counts[i]` sets of each row, one after another, behind two rows that nobody owns."""
    v = [given.v.new_full((2, *given.v.shape[2:]), float("nan"))]
    s = [given.s.new_zeros((2, *given.s.shape[2:]))]
    for i, count in enumerate(given.counts):
        v.append(given.v[i, :count])
        s.append(given.s[i, :count])
    return torch.cat(v), torch.cat(s), list(accumulate(given.counts, initial=2))


def _variable_length_merge_states(case: StateCase, given: States, backend: str) -> list[Comparison]:
    v, s, indptr = _packed(given)
    array = torch.tensor(indptr, dtype=torch.int32, device=v.device)
    result = cascade.variable_length_merge_states(v, s, array, backend=backend)
    ref = oracle_states.variable_length_merge_states(v.cpu(), s.cpu(), indptr)
    return _compare_state(result, ref, case.dtype)


def _attention_sum(case: StateCase, given: States, backend: str) -> list[Comparison]:
    out, mass = oracle_states.attention_sum(given.v.cpu())
    allowed = tolerances.plain_sum(out, mass, case.dtype, case.sets)
    return [Comparison("v", cascade.attention_sum(given.v, backend=backend), out, allowed)]


def _variable_length_attention_sum(case: StateCase, given: States, backend: str) -> list[Comparison]:
    v, _, indptr = _packed(given)
    out, mass = oracle_states.variable_length_attention_sum(v.cpu(), indptr)
    allowed = tolerances.plain_sum(out, mass, case.dtype, case.sets)
    array = torch.tensor(indptr, dtype=torch.int32, device=v.device)
    result = cascade.variable_length_attention_sum(v, array, backend=backend)
    return [Comparison("v", result, out, allowed)]


_STATE_CALLS: dict[Op, Callable[[StateCase, States, str], list[Comparison]]] = {
    Op.MERGE_STATE: _merge_state,
    Op.MERGE_STATE_IN_PLACE: _merge_state_in_place,
    Op.MERGE_STATES: _merge_states,
    Op.VARIABLE_LENGTH_MERGE_STATES: _variable_length_merge_states,
    Op.ATTENTION_SUM: _attention_sum,
    Op.VARIABLE_LENGTH_ATTENTION_SUM: _variable_length_attention_sum,
}


def run_states(case: StateCase, backend: str, device: torch.device) -> list[Comparison]:
    """Call one of the state operations and compare; inputs must come out unchanged."""
    given = states(case, device)
    return _STATE_CALLS[case.op](case, given, backend)


def _as_attention(case: AppendCase) -> AttentionCase:
    """The paged prefill whose cache an append fills: the same table, layout and storage."""
    return AttentionCase(
        op=Op.BATCH_PREFILL_PAGED,
        index=case.index,
        dtypes=DTypes(DType.FP32, case.dtype, DType.FP32),
        head_dims=case.head_dims,
        group_size=1,
        kv_heads=case.kv_heads,
        layout=case.layout,
        lengths=case.lengths,
        page_size=case.page_size,
        cache=case.cache,
        storage=case.storage,
        plan_arrays=case.plan_arrays,
    )


def _exact(name: str, actual: torch.Tensor, expected: torch.Tensor) -> Comparison:
    """Bytes as numbers, so that NaN equals itself; equal ones are not compared a second time one by one."""
    got, wanted = memory.raw_bytes(actual).cpu(), memory.raw_bytes(expected)
    if got.equal(wanted):
        got, wanted = got[:1], wanted[:1]
    return Comparison(name, got.to(torch.float64), wanted.to(torch.float64), torch.zeros(wanted.shape))


def run_append(case: AppendCase, backend: str, device: torch.device) -> list[Comparison]:
    """Append every request's last tokens and compare the whole cache, bit for bit, with the oracle's copy."""
    given = attention_inputs.build(_as_attention(case), device)
    table, lens = given.tables[0], lengths.prefill(case.lengths, case.page_size)
    appended = [min(pair) for pair in zip(*lens, strict=True)]
    nnz = sum(appended) + case.padding
    indptr = list(accumulate(appended, initial=0))
    pairs = oracle_states.batch_positions(indptr, lens.kv, nnz)
    batch_indices, positions = [list(column) for column in zip(*pairs, strict=True)] if pairs else ([], [])
    generator = torch.Generator().manual_seed(case.index)
    rows = [
        memory.values((nnz, case.kv_heads, dim), case.dtype, 1.0, generator).to(device)
        for dim in case.head_dims
    ]
    placed = (given.pool.k.nhd, given.pool.v.nhd)
    expected = [
        oracle_states.append(row.cpu(), batch_indices, positions, cache.cpu(), table.indices, table.kv_indptr)
        for row, cache in zip(rows, placed, strict=True)
    ]
    rocade.append_paged_kv_cache(
        rows[0],
        rows[1],
        torch.tensor(batch_indices, dtype=torch.int32, device=device),
        torch.tensor(positions, dtype=torch.int32, device=device),
        given.pool.cache,
        table.arrays["indices"],
        table.arrays["kv_indptr"],
        table.arrays["last_page_len"],
        kv_layout=case.layout.value,
        backend=backend,
    )
    return [_exact(name, a, e) for name, a, e in zip("kv", placed, expected, strict=True)]
