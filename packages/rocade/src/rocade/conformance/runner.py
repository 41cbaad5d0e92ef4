"""Runs one case through the public API on one backend and holds the result to the oracle.

A case is passed, failed, or refused. Refused means that `arch_caps.reasons` gives at least one reason; then
the public call must refuse as well.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache

import torch

import arch_caps
from arch_caps import ArchCapabilityError, MaskKind, Op, Request
from rocade import _device
from rocade.conformance import calls, inputs, memory, state_calls, tolerances
from rocade.conformance.cases import AppendCase, AttentionCase, Case, StateCase
from rocade.conformance.oracle import Reference
from rocade.conformance.state_calls import Comparison

CPU = torch.device("cpu")


class Outcome(enum.StrEnum):
    """What became of a case."""

    PASSED = "passed"
    FAILED = "failed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Report:
    """One case on one backend. `worst` is the largest error as a multiple of what is allowed."""

    case: Case
    backend: str
    outcome: Outcome
    detail: str = ""
    worst: float = 0.0
    launches: int = 0  # of kernels in the emulator
    where: str = ""  # options of `rocade verify` that lead there again

    def __str__(self) -> str:
        """The failure with everything needed to see it again."""
        which = f"--op {self.case.op} --backend {self.backend} --case {self.case.index}"
        command = f"rocade verify{self.where} {which}"
        return f"{self.detail}\n    {self.case!r}\n    again: {command}"


def request_of(case: Case) -> Request:
    """What the case asks of the table; built here from the case alone, not by the wrappers' code."""
    if isinstance(case, StateCase):
        return _state_request(case)
    if isinstance(case, AppendCase):
        return _append_request(case)
    lens = inputs.level_lengths(case)
    mask = MaskKind.CUSTOM if case.mask == "packed" else MaskKind(case.mask)
    decodes = case.op in (Op.BATCH_DECODE, Op.SINGLE_DECODE)
    return Request(
        op=case.op,
        q_dtype=case.dtypes.q,
        kv_dtype=case.dtypes.kv,
        o_dtype=case.dtypes.o,
        num_qo_heads=case.qo_heads,
        num_kv_heads=case.kv_heads,
        head_dim_qk=case.head_dims[0],
        head_dim_vo=case.head_dims[1],
        kv_layout=case.layout,
        page_size=case.page_size,
        mask=MaskKind.CAUSAL if decodes and case.q_len > 1 else mask,
        window_left=case.window_left,
        logits_soft_cap=case.soft_cap,
        pos_encoding=case.pos_encoding,
        num_levels=case.levels,
        max_qo_len=case.q_len if case.op is Op.BATCH_DECODE else max(lens[-1].qo, default=0),
        max_kv_len=sum(max(level.kv, default=0) for level in lens),
        graph=case.entry == "graph",
        fixed_split_size=(case.split_pages or 0) * max(case.page_size, 1) or None,
        disable_split_kv=case.split == "off",
    )


def _state_request(case: StateCase) -> Request:
    return Request(
        op=case.op,
        q_dtype=case.dtype,
        kv_dtype=case.dtype,
        o_dtype=case.dtype,
        num_qo_heads=case.heads,
        num_kv_heads=case.heads,
        head_dim_qk=case.head_dim,
        head_dim_vo=case.head_dim,
    )


def _append_request(case: AppendCase) -> Request:
    return Request(
        op=case.op,
        q_dtype=case.dtype,
        kv_dtype=case.dtype,
        o_dtype=case.dtype,
        num_qo_heads=case.kv_heads,
        num_kv_heads=case.kv_heads,
        head_dim_qk=case.head_dims[0],
        head_dim_vo=case.head_dims[1],
        kv_layout=case.layout,
        page_size=case.page_size,
    )


def reasons_of(case: Case, backend: str, target: str) -> list[arch_caps.Reason]:
    """Why the table refuses a case: its request, or a partial state, which only the run is given."""
    toolchain = _device.toolchain()  # dispatch judges by it, too
    found = arch_caps.reasons(request_of(case), backend=backend, target=target, toolchain=toolchain)
    partial = isinstance(case, AttentionCase) and case.partial
    return [*found, *(arch_caps.partial_state_reasons(case.op, backend) if partial else ())]


def run(case: Case, backend: str, target: str = "cpu", device: torch.device = CPU) -> Report:
    """Run one case and judge it. No exception of the call escapes: it is a failure with its own text."""
    refused = reasons_of(case, backend, target)
    try:
        comparisons, complaints = _call(case, backend, device)
    except ArchCapabilityError as error:
        if refused:
            return Report(case, backend, Outcome.REFUSED, "; ".join(reason.text for reason in refused))
        return Report(case, backend, Outcome.FAILED, f"refused without a reason in the table: {error}")
    except Exception as error:
        return Report(case, backend, Outcome.FAILED, f"{type(error).__name__}: {error}")
    if refused and not _is_vacuous(case):
        return Report(case, backend, Outcome.FAILED, f"ran, but the table says: {refused[0].text}")
    return _judge(case, backend, comparisons, complaints)


def _is_vacuous(case: Case) -> bool:
    """Whether a case has no element to compute, so that a call may return before it asks any backend."""
    return isinstance(case, StateCase) and case.rows == 0


def _judge(case: Case, backend: str, comparisons: list[Comparison], complaints: list[str]) -> Report:
    worst, details = 0.0, list(complaints)
    for name, actual, expected, allowed in comparisons:
        excess, place = tolerances.largest_excess(actual, expected, allowed)
        worst = max(worst, excess)
        if excess > 1:
            details.append(f"{name} is {excess:.3g} times its tolerance off, {place}")
    outcome = Outcome.FAILED if details else Outcome.PASSED
    return Report(case, backend, outcome, "; ".join(details), worst)


def _call(case: Case, backend: str, device: torch.device) -> tuple[list[Comparison], list[str]]:
    if isinstance(case, StateCase):
        return state_calls.run_states(case, backend, device), []
    if isinstance(case, AppendCase):
        return state_calls.run_append(case, backend, device), []
    return _attention(case, backend, device)


@lru_cache(maxsize=64)
def _prepared(case: AttentionCase, device: torch.device) -> tuple[inputs.AttentionInputs, Reference | None]:
    """Inputs and answer of a case, kept because each backend in turn asks for the same ones."""
    given = inputs.build(case, device)
    return given, inputs.reference(case, given)


def _buffers(case: AttentionCase, rows: int, device: torch.device) -> calls.Buffers:
    """Poisoned result tensors; those of a padded case are slices of wider ones."""
    if not case.buffers:
        return calls.Buffers(None, None)
    heads, dim = case.qo_heads, case.head_dims[1]
    wide = heads + 1 if case.storage == "padded" else heads
    out = memory.full((rows, wide, dim), float("nan"), case.dtypes.o, device)[:, :heads]
    lse = torch.full((rows, heads), float("nan"), dtype=torch.float32, device=device)
    return calls.Buffers(out, lse if case.return_lse else None)


def _attention(case: AttentionCase, backend: str, device: torch.device) -> tuple[list[Comparison], list[str]]:
    given, ref = _prepared(case, device)
    rows = given.q.shape[0]
    before = [t.clone() for t in _inputs_of(given)]
    out, lse, complaints = _once(case, given, backend, rows)
    if case.rerun:
        again = _once(case, given, backend, rows)
        if not _same_bits(out, again[0]) or (lse is not None and not _same_bits(lse, again[1])):
            complaints.append("a second run gave other bits")
    if not all(_same_bits(old, new) for old, new in zip(before, _inputs_of(given), strict=True)):
        complaints.append("an input was written to")
    if out.dtype is not memory.TORCH_DTYPES[case.dtypes.o]:
        complaints.append(f"out is {out.dtype}, expected {case.dtypes.o}")
    if ref is None:
        empty = torch.zeros(0, case.qo_heads, case.head_dims[1], dtype=torch.float64)
        return [Comparison("out", out, empty, empty)], complaints
    position = inputs.largest_position(case, given)
    out_tol, lse_tol = tolerances.attention(ref, case.dtypes, position)
    comparisons = [Comparison("out", out, ref.out, out_tol)]
    if lse is not None:
        comparisons.append(Comparison("lse", lse, ref.lse, lse_tol))
    return comparisons, complaints


def _inputs_of(given: inputs.AttentionInputs) -> list[torch.Tensor]:
    arrays = [t for table in given.tables for t in table.arrays.values()]
    return [given.q, given.pool.k.given, given.pool.v.given, *arrays, *(given.partial or ())]


def _same_bits(a: torch.Tensor, b: torch.Tensor | None) -> bool:
    if b is None or a.dtype is not b.dtype or a.shape != b.shape:
        return False
    return memory.raw_bytes(a).equal(memory.raw_bytes(b))


def _once(
    case: AttentionCase, given: inputs.AttentionInputs, backend: str, rows: int
) -> tuple[torch.Tensor, torch.Tensor | None, list[str]]:
    """One plan and run into fresh buffers, and what was wrong with the form of its result."""
    buffers = _buffers(case, rows, given.q.device)
    result = calls.ATTENTION[case.op](case, given, backend, buffers)
    out, lse = result if case.return_lse else (result, None)
    complaints = []
    if buffers.out is not None and out.data_ptr() != buffers.out.data_ptr():
        complaints.append("out= was given, and another tensor came back")
    if buffers.lse is not None and (lse is None or lse.data_ptr() != buffers.lse.data_ptr()):
        complaints.append("lse= was given, and another tensor came back")
    if lse is not None and lse.dtype is not torch.float32:
        complaints.append(f"lse is {lse.dtype}, expected float32")
    return out, lse, complaints
