"""Prefill on the CPU beside scaled_dot_product_attention as a user would call it."""

from __future__ import annotations

import torch

import rocade
from rocade.bench._report import Report
from rocade.bench._timing import compete
from rocade.bench._workload import LLAMA_HEADS

SDPA_FLOOR = 0.9
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}
ROTATE = 4


def bench_prefill(report: Report, dtype: torch.dtype, length: int, *, causal: bool) -> None:
    """One prefill row, batch 1: rocade's single prefill against SDPA with enable_gqa."""
    heads = LLAMA_HEADS
    qs = [torch.randn(length, heads.qo, heads.dim).to(dtype) for _ in range(ROTATE)]
    ks, vs = ([torch.randn(length, heads.kv, heads.dim).to(dtype) for _ in range(ROTATE)] for _ in range(2))

    def ours(turn: int) -> torch.Tensor:
        i = turn % ROTATE
        return rocade.single_prefill_with_kv_cache(qs[i], ks[i], vs[i], causal=causal)

    def sdpa(turn: int) -> torch.Tensor:
        q, k, v = (x[turn % ROTATE].transpose(0, 1)[None] for x in (qs, ks, vs))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        return out[0].transpose(0, 1)

    kind = str(dtype).removeprefix("torch.")
    case = f"prefill {kind} {length} {'causal' if causal else 'full'}"
    error = float((ours(0).float() - sdpa(0).float()).abs().max())
    report.wrong(case, error, TOLERANCE[dtype])
    samples = compete({"rocade": ours, "SDPA": sdpa}, min_rounds=7)
    report.figure(
        case,
        **{f"{name} ms": samples.median(name) * 1e3 for name in ("rocade", "SDPA")},
        rounds=len(samples.rounds),
    )
    report.floor(case, "speed against SDPA", samples.ratio("SDPA", "rocade"), SDPA_FLOOR)
