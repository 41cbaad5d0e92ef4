"""`rocade bench gpu`: merging, appending and attention on a CUDA or ROCm GPU, beside FlashInfer."""

from __future__ import annotations

import argparse
import logging
import platform
from collections.abc import Sequence
from pathlib import Path

import torch

import rocade
from rocade.bench import _gpu_peer
from rocade.bench._attention_host import bench_attention_host
from rocade.bench._gpu_append import bench_append
from rocade.bench._gpu_clock import Clock, DeviceClock
from rocade.bench._gpu_decode import bench_decode
from rocade.bench._gpu_launch import bench_launch
from rocade.bench._gpu_peer import Peer
from rocade.bench._gpu_prefill import bench_prefill
from rocade.bench._gpu_states import bench_states, copies
from rocade.bench._report import Report
from rocade.bench._timing import compete

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
STATE_PARTS = ("merge_state", "merge_state_in_place", "merge_states")
ATTENTION_PARTS = ("decode", "prefill", "host")
PARTS = ("launch", *STATE_PARTS, "append", *ATTENTION_PARTS)
COPY_BYTES = 4 << 30  # read and written together, for the machine's own figure


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rocade bench gpu",
        description=__doc__,
        epilog="Figures are microseconds a call of a graph replay, unless they say eager (one call after the "
        "other from Python) or CPU (time to enqueue one call). Install flashinfer-python to compare with it.",
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="only these parts (default: all)")
    parser.add_argument("--dtype", action="append", choices=tuple(DTYPES), help="default: fp16")
    parser.add_argument("--device", default="cuda", help="torch device (default: cuda)")
    parser.add_argument("--no-peer", action="store_true", help="leave FlashInfer out")
    parser.add_argument("--fa3", action="store_true", help="show FlashInfer's fa3 beside prefill (Hopper)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write figures and floors to FILE")
    return parser


def head(device: torch.device, clock: Clock, peer: Peer) -> str:
    """The machine and the versions in one line, with the bandwidth of a large copy."""
    chip = torch.cuda.get_device_properties(device)
    kind = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    copy = copies(COPY_BYTES, 2, device)
    rate = COPY_BYTES / compete({"copy": copy}, budget_s=0.2, timer=clock.replay).median("copy")
    return (
        f"{chip.name}, {chip.multi_processor_count} compute units, cache {clock.cache_bytes >> 20} MiB, "
        f"copy {rate / 1e12:.2f} TB/s read and written; rocade {rocade.__version__}, {peer.text}, "
        f"torch {torch.__version__}, {kind}, Python {platform.python_version()}"
    )


def run(
    report: Report,
    clock: Clock,
    peer: Peer,
    device: torch.device,
    *,
    parts: Sequence[str],
    dtypes: Sequence[torch.dtype],
    fa3: bool = False,
) -> None:
    """Run the chosen parts for each dtype."""
    for dtype in dtypes:
        if "launch" in parts:
            bench_launch(report, clock, peer, dtype, device)
        for op in STATE_PARTS:
            if op in parts:
                bench_states(report, clock, peer, op, dtype, device)
        if "append" in parts:
            bench_append(report, clock, peer, dtype, device)
        if "decode" in parts:
            bench_decode(report, clock, peer, dtype, device)
        if "prefill" in parts:
            bench_prefill(report, clock, peer, dtype, device, fa3=fa3)
    if "host" in parts:
        bench_attention_host(report, device, clock.wait)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen parts; 1 when a floor is missed or a result is wrong, 2 without a GPU, else 0."""
    parser = _parser()
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("this torch sees no CUDA or ROCm device")
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # dispatch says which backend serves
    device = torch.device(
        args.device if ":" in args.device else f"{args.device}:{torch.cuda.current_device()}"
    )
    torch.cuda.set_device(device)
    peer = Peer(None, "FlashInfer left out") if args.no_peer else _gpu_peer.load()
    clock = DeviceClock(device)
    report = Report()
    with torch.inference_mode():
        machine = head(device, clock, peer)
        print(machine, flush=True)
        dtypes = [DTYPES[name] for name in args.dtype or ("fp16",)]
        run(report, clock, peer, device, parts=args.part or PARTS, dtypes=dtypes, fa3=args.fa3)
    return report.close(args.json, machine)
