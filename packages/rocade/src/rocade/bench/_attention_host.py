"""CPU time of attention calls on backend hip: plan, run and single calls, with the stages of a plan.

On an idle GPU, which `rocade bench cpu` uses, two things are missing: the driver's part of each launch, and
the copy of a plan's list.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

import rocade
from arch_caps import TARGETS, Vendor
from rocade import _dispatch, _single
from rocade._wrapper import BatchWrapper
from rocade.backends import _idle
from rocade.bench._report import Report
from rocade.bench._workload import LLAMA_HEADS, page_table

TARGET = next(name for name, target in TARGETS.items() if target.vendor is Vendor.AMD)
BATCHES = (64, 256, 1024)
KV_LEN, PAGE_SIZE = 1024, 16
CALLS = 300  # of each, all taking turns
WARM = 10
PLAN_FLOOR_US, RUN_FLOOR_US = 100.0, 15.0
WORKSPACE = 512 << 20

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Spent:
    """Microseconds a call."""

    best: float
    median: float


def measure(
    calls: Mapping[str, Call], count: int = CALLS, settle: Callable[[], object] = int
) -> dict[str, Spent]:
    """Time calls that take turns, so that what slows the machine down slows all of them.

    `settle` is called before each, and waits until the device has nothing to do.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(WARM + count):
        for name, call in calls.items():
            settle()
            start = time.perf_counter()
            call()
            if turn >= WARM:
                times[name].append((time.perf_counter() - start) * 1e6)
    return {name: Spent(min(us), statistics.median(us)) for name, us in times.items()}


def _plans(batch: int, device: torch.device) -> tuple[dict[str, Call], dict[str, BatchWrapper]]:
    """plan() of three wrappers: decode, and prefills of one query token a request.

    Page ids are on the device, all other arrays on the host, as engines have them.
    """
    heads = LLAMA_HEADS
    table = page_table(torch.arange(batch * KV_LEN // PAGE_SIZE).view(batch, -1), KV_LEN, PAGE_SIZE)
    arrays = (table.indptr, table.indices.to(device), table.last_page_len)
    qo = torch.arange(batch + 1, dtype=torch.int32)
    rows = torch.arange(0, (batch + 1) * KV_LEN, KV_LEN, dtype=torch.int32)
    sizes = (heads.qo, heads.kv, heads.dim)
    memory = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
    decode = rocade.BatchDecodeWithPagedKVCacheWrapper(memory)
    paged = rocade.BatchPrefillWithPagedKVCacheWrapper(memory)
    ragged = rocade.BatchPrefillWithRaggedKVCacheWrapper(memory)
    calls: dict[str, Call] = {
        "decode": lambda: decode.plan(*arrays, *sizes, PAGE_SIZE),
        "paged prefill": lambda: paged.plan(qo, *arrays, *sizes, PAGE_SIZE, causal=True),
        "ragged prefill": lambda: ragged.plan(qo, rows, *sizes, causal=True),
    }
    return calls, {"decode": decode, "paged prefill": paged, "ragged prefill": ragged}


def _stages(wrapper: BatchWrapper) -> dict[str, Call]:
    """What a plan() does after it has read its arguments."""
    plan, problem = wrapper._current(), wrapper._problem
    assert problem is not None  # it has planned
    request, device = plan.request, problem.device
    backend = _dispatch.select(request, device)
    return {
        "gate": lambda: _dispatch.select(request, device),
        "list": lambda: backend.plan(request, problem),
    }


def _runs(batch: int, wrappers: Mapping[str, BatchWrapper], device: torch.device) -> dict[str, Call]:
    heads, dtype = LLAMA_HEADS, torch.float16
    q = torch.zeros(batch, heads.qo, heads.dim, dtype=dtype, device=device)
    pool = (batch * KV_LEN // PAGE_SIZE, 2, PAGE_SIZE, heads.kv, heads.dim)
    cache = torch.empty(pool, dtype=dtype, device=device)
    out, lse = torch.empty_like(q), torch.empty(batch, heads.qo, device=device)
    decode: Any = wrappers["decode"]
    prefill: Any = wrappers["paged prefill"]
    return {
        "decode, out given": lambda: decode.run(q, cache, out=out),
        "decode": lambda: decode.run(q, cache),
        "prefill, out and lse given": lambda: prefill.run(q, cache, out=out, lse=lse, return_lse=True),
    }


def _singles(device: torch.device) -> dict[str, Call]:
    heads, dtype = LLAMA_HEADS, torch.float16
    q = torch.zeros(64, heads.qo, heads.dim, dtype=dtype, device=device)
    k = torch.zeros(8192, heads.kv, heads.dim, dtype=dtype, device=device)
    calls: dict[str, Call] = {
        "prefill 64 x 64": lambda: rocade.single_prefill_with_kv_cache(q, k[:64], k[:64], causal=True),
        "prefill 64 x 8192": lambda: rocade.single_prefill_with_kv_cache(q, k, k, causal=True),
        "decode 8192": lambda: rocade.single_decode_with_kv_cache(q[0], k, k),
    }
    # And as the first of their kind, which plan.
    return calls | {f"{name}, planned": _first(call) for name, call in calls.items()}


def _first(call: Call) -> Call:
    def planned() -> object:
        kept, _single._local.known = _single._local.known, {}
        try:
            return call()
        finally:
            _single._local.known = kept

    return planned


def bench_attention_host(report: Report, device: torch.device, settle: Callable[[], object] = int) -> None:
    """All of it on a device; floors are for medians."""
    for batch in BATCHES:
        plans, wrappers = _plans(batch, device)
        for name, spent in measure(plans, CALLS, settle).items():
            case = f"CPU time of plan {name}, {batch} requests"
            stages = measure(_stages(wrappers[name]), CALLS // 3, settle)
            parts = {f"{stage} us": part.median for stage, part in stages.items()}
            report.figure(case, **{"best us": spent.best}, **parts)
            report.floor(case, "us", spent.median, PLAN_FLOOR_US, at_least=False)
        for name, spent in measure(_runs(batch, wrappers, device), CALLS, settle).items():
            case = f"CPU time of run {name}, {batch} requests"
            report.figure(case, **{"best us": spent.best})
            report.floor(case, "us", spent.median, RUN_FLOOR_US, at_least=False)
    for name, spent in measure(_singles(device), CALLS, settle).items():
        report.figure(f"CPU time of single {name}", **{"best us": spent.best, "median us": spent.median})


def bench_idle(report: Report) -> None:
    """The same on an idle GPU."""
    with _idle.idle(TARGET):
        bench_attention_host(report, torch.device("cpu"))
