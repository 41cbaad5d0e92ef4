"""`rocade bench cpu`: decode, cascade, prefill and host costs beside PyTorch, in one run.

Part `launch` needs no GPU either: it times what the CPU does for the calls of a GPU's kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from rocade.bench._attention_host import bench_idle
from rocade.bench._decode import Shared, bench_cascade, bench_decode
from rocade.bench._host import bench_import, bench_plan
from rocade.bench._machine import Machine, measure
from rocade.bench._prefill import bench_prefill
from rocade.bench._report import Report

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PARTS = ("host", "launch", "prefill", "decode", "cascade", "sharing")
# Shapes around the point where sharing starts to pay, to catch a plan that shares at a loss.
SHARING_GRID = tuple((b, p) for p in (64, 256, 1024, 4096) for b in (2, 4, 16, 64))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rocade bench cpu", description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="only these parts (default: all)")
    parser.add_argument("--dtype", action="append", choices=tuple(DTYPES), help="only these dtypes")
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's own)")
    parser.add_argument("--quick", action="store_true", help="leave out the largest cache (64 x 8192)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write figures and floors to FILE")
    return parser


def _decode(report: Report, machine: Machine, dtypes: Sequence[torch.dtype], *, quick: bool) -> None:
    for dtype in dtypes:
        for kv_len in (1024, 8192):
            for batch in (1, 16, 64):
                if not (quick and batch == 64 and kv_len == 8192):
                    bench_decode(report, machine, dtype, batch, kv_len)


def _sharing(report: Report, machine: Machine, dtypes: Sequence[torch.dtype]) -> None:
    for dtype in dtypes:
        for batch, prefix in SHARING_GRID:
            bench_cascade(report, machine, Shared(batch, prefix, 128, dtype), floors=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen parts; return 1 when a floor is missed or a result is wrong, else 0."""
    args = _parser().parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    parts = args.part or PARTS
    dtypes = [DTYPES[name] for name in args.dtype or DTYPES]
    report = Report()
    with torch.inference_mode():
        machine = measure()
        print(machine, flush=True)
        if "host" in parts:
            bench_import(report)
            bench_plan(report)
        if "launch" in parts:
            bench_idle(report)
        if "prefill" in parts:
            for dtype in dtypes:
                for length in (128, 512, 2048):
                    for causal in (True, False):
                        bench_prefill(report, dtype, length, causal=causal)
        if "decode" in parts:
            _decode(report, machine, dtypes, quick=args.quick)
        if "cascade" in parts:
            for dtype in dtypes:
                bench_cascade(report, machine, Shared(64, 8192, 128, dtype), floors=True)
        if "sharing" in parts:
            _sharing(report, machine, dtypes)
    return report.close(args.json, str(machine))
