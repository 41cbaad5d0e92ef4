"""Decode and prefill on a GPU: the check against fp64 that every contender passes before it is timed.

Letters: n query rows, m keys, H and K query and KV heads, D head dims.
"""

from __future__ import annotations

import torch

from rocade.bench._gpu_case import OURS
from rocade.bench._gpu_states import PEER_ERROR, TABLE_DTYPES, State, excess
from rocade.bench._report import Report
from rocade.conformance import oracle, tolerances
from rocade.conformance.cases import DTypes
from rocade.conformance.oracle import Reference, Rules


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> Reference:
    """The oracle's answer for `q [n, H, D]`, `k, v [m, K, D]`, one KV head at a time to spare memory."""
    group = q.shape[1] // k.shape[1]
    rules = Rules(scale=q.shape[2] ** -0.5, causal=causal)
    with q.device:
        parts = [
            oracle.attend(q[:, h * group : (h + 1) * group], k[:, h : h + 1], v[:, h : h + 1], rules)
            for h in range(k.shape[1])
        ]
    return Reference(*(torch.cat(column, dim=1) for column in zip(*parts, strict=True)))


def check(report: Report, case: str, name: str, got: State, expected: Reference) -> None:
    """Hold `out, lse` of one contender to fp64: ours to the grid's tolerance, a rival to a wide one."""
    dtype = got[0].dtype
    if name == OURS:
        table = TABLE_DTYPES[dtype]
        allowed = tolerances.attention(expected, DTypes(table, table, table), 0.0)
        worst = excess(got, (expected.out, expected.lse), allowed)
        report.wrong(f"{case}, {name} against fp64, share of the tolerance", worst, 1.0)
        return
    error = float((got[0] - expected.out).norm() / expected.out.norm())
    report.wrong(f"{case}, {name} against fp64, relative norm", error, PEER_ERROR[dtype])
