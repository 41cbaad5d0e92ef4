"""Single prefill on a GPU, long prompts: rocade beside FlashInfer's fa2 and, where the chip has it, fa3."""

from __future__ import annotations

import torch

import rocade
from rocade.bench import _gpu_attention
from rocade.bench._gpu_case import OURS, Case, Floors, bench, buffer_sets
from rocade.bench._gpu_clock import Clock
from rocade.bench._gpu_peer import NAME as PEER
from rocade.bench._gpu_peer import Library, Peer
from rocade.bench._gpu_states import State
from rocade.bench._report import Report
from rocade.bench._timing import Call
from rocade.bench._workload import LLAMA_HEADS

FLOORS = {1024: 1.0, 8192: 0.95}  # of fa2's speed, by length
FA3 = f"{PEER} fa3"  # shown only: instructions that rocade's NVIDIA build does not use
CHECKED_ROWS = 128  # at either end


class Prefill:
    """R sets of `q [n, H, D]`, `k, v [n, K, D]`."""

    def __init__(self, length: int, sets: int, dtype: torch.dtype, device: torch.device) -> None:
        heads = LLAMA_HEADS
        self.length = length

        def drawn(count: int) -> torch.Tensor:
            return torch.randn(sets, length, count, heads.dim, dtype=dtype, device=device)

        self.q, self.k, self.v = drawn(heads.qo), drawn(heads.kv), drawn(heads.kv)

    def calls(self, library: Library, *, causal: bool, backend: str) -> Call:
        """The library's prefill on the set of a turn."""
        prefill = library.single_prefill_with_kv_cache
        given, count = list(zip(self.q, self.k, self.v, strict=True)), self.q.shape[0]
        return lambda turn: prefill(*given[turn % count], causal=causal, backend=backend)

    def check(
        self, report: Report, case: str, name: str, library: Library, *, causal: bool, way: str
    ) -> None:
        """The first and the last rows of the first set against fp64."""
        q, k, v = self.q[0], self.k[0], self.v[0]
        prefill = library.single_prefill_with_kv_cache
        out, lse = prefill(q, k, v, causal=causal, backend=way, return_lse=True)
        for first in {0, self.length - min(CHECKED_ROWS, self.length)}:
            rows = slice(first, first + CHECKED_ROWS)
            keys = slice(0, min(rows.stop, self.length) if causal else self.length)
            expected = _gpu_attention.reference(q[rows], k[keys], v[keys], causal=causal)
            got: State = (out[rows], lse[rows])
            _gpu_attention.check(report, f"{case}, rows from {first}", name, got, expected)


def bench_prefill(
    report: Report, clock: Clock, peer: Peer, dtype: torch.dtype, device: torch.device, *, fa3: bool
) -> None:
    """Every length, causal and not: check, then time."""
    heads, kind = LLAMA_HEADS, str(dtype).removeprefix("torch.")
    for length, floor in FLOORS.items():
        moved = 2 * length * (heads.qo + heads.kv) * heads.dim * dtype.itemsize
        work = Prefill(length, buffer_sets(moved, clock.cache_bytes), dtype, device)
        for causal in (False, True):
            mask = "causal" if causal else "full"
            name = f"prefill {kind} {length} {mask}, {heads.qo}/{heads.kv} x {heads.dim}"
            contenders: dict[str, tuple[Library, str]] = {OURS: (rocade, "auto")}
            if peer.present:
                contenders[f"{PEER} fa2"] = (peer.module, "fa2")
                if fa3:
                    contenders[FA3] = (peer.module, "fa3")
            for who, (library, way) in contenders.items():
                work.check(report, name, who, library, causal=causal, way=way)
            calls = {w: work.calls(lib, causal=causal, backend=way) for w, (lib, way) in contenders.items()}
            flops = 4.0 * length**2 * heads.qo * heads.dim * (0.5 if causal else 1.0)
            sets = work.q.shape[0]
            case = Case(name, moved, sets, Floors(peer=floor), flops=flops, unjudged=(FA3,))
            bench(report, clock, case, calls)
