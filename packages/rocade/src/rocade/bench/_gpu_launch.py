"""CPU cost of a call on a GPU: what the public function takes, and what is left of it below dispatch."""

from __future__ import annotations

import torch

import rocade
from arch_caps import Op
from rocade import _dispatch, _request
from rocade.bench import _gpu_case
from rocade.bench._gpu_case import OURS, dropped
from rocade.bench._gpu_clock import Clock
from rocade.bench._gpu_peer import NAME as PEER
from rocade.bench._gpu_peer import Peer
from rocade.bench._report import Report
from rocade.bench._timing import Call, compete

ROWS, HEADS, DIM = 64, 32, 128


def bench_launch(report: Report, clock: Clock, peer: Peer, dtype: torch.dtype, device: torch.device) -> None:
    """CPU microseconds of a small merge_state, by layer."""
    v_a, v_b, v_out = (torch.randn(ROWS, HEADS, DIM, dtype=dtype, device=device) for _ in range(3))
    s_a, s_b, s_out = (torch.randn(ROWS, HEADS, device=device) for _ in range(3))
    request = _request.states(Op.MERGE_STATE, dtype=dtype, num_heads=HEADS, head_dim=DIM)
    backend = _dispatch.select(request, device)
    out = (v_out, s_out)
    calls: dict[str, Call] = {
        "below dispatch": lambda _: backend.merge_state(v_a, s_a, v_b, s_b, v_out, s_out),
        f"{OURS} with out": lambda _: rocade.cascade.merge_state(v_a, s_a, v_b, s_b, out=out),
        OURS: lambda _: rocade.merge_state(v_a, s_a, v_b, s_b),
        "torch.add with out": lambda _: torch.add(s_a, s_b, out=s_out),
    }
    if peer.present:
        calls[PEER] = lambda _: peer.module.merge_state(v_a, s_a, v_b, s_b)
    count = _gpu_case.HOST_CALLS
    loops = {name: dropped(call, count) for name, call in calls.items()}
    rounds = {"budget_s": _gpu_case.BUDGET_S, "min_rounds": _gpu_case.ROUNDS}
    samples = compete(loops, timer=clock.host, **rounds)  # type: ignore[arg-type]
    spent = {name: samples.median(name) / count * 1e6 for name in calls}
    case = f"CPU time of merge_state on {backend.name}"
    report.figure(case, **{f"{name} us": us for name, us in spent.items()})
    if peer.present:
        report.floor(case, f"speed against {PEER}", spent[PEER] / spent[OURS], 1.0)
