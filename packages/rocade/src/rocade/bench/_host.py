"""Host costs: plan() of a large batch with host arrays, and what `import rocade` adds to torch."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch

import rocade
from rocade.bench._report import Report
from rocade.bench._workload import LLAMA_HEADS, Table, page_table, workspace

REQUESTS = 1024
KV_LEN = 1024
PAGE_SIZE = 16
SHARED_PAGES = 8
PLAN_FLOOR_US = 100.0
IMPORT_FLOOR_S = 0.15
PLAN_CALLS = 200
IMPORT_RUNS = 7


def plan_calls() -> dict[str, Callable[[], object]]:
    """plan() of every wrapper for 1024 requests; prefill wrappers plan one query token a request."""
    heads = LLAMA_HEADS
    pages = torch.arange(REQUESTS * (KV_LEN // PAGE_SIZE), dtype=torch.int32).view(REQUESTS, -1)
    flat = page_table(pages, KV_LEN, PAGE_SIZE)
    qo = torch.arange(REQUESTS + 1, dtype=torch.int32)
    sizes = (heads.qo, heads.kv, heads.dim)
    decode = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace())
    paged = rocade.BatchPrefillWithPagedKVCacheWrapper(workspace())
    ragged = rocade.BatchPrefillWithRaggedKVCacheWrapper(workspace())
    prefill_shared = rocade.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(workspace())
    decode_shared = rocade.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(workspace())
    table = (flat.indptr, flat.indices, flat.last_page_len)
    return {
        "decode": lambda: decode.plan(*table, *sizes, PAGE_SIZE),
        "paged prefill": lambda: paged.plan(qo, *table, *sizes, PAGE_SIZE, causal=True),
        "ragged prefill": lambda: ragged.plan(qo, qo, *sizes, causal=True),
        "cascade": _cascade_plan(pages, qo, sizes),
        "decode with shared prefix": lambda: decode_shared.begin_forward(*table, *sizes, PAGE_SIZE),
        "prefill with shared prefix": lambda: prefill_shared.begin_forward(qo, *table, *sizes, PAGE_SIZE),
    }


def _cascade_plan(pages: torch.Tensor, qo: torch.Tensor, sizes: tuple[int, int, int]) -> Callable[[], object]:
    prefix: Table = page_table(pages[:1, :SHARED_PAGES], SHARED_PAGES * PAGE_SIZE, PAGE_SIZE)
    suffix = page_table(pages[:, SHARED_PAGES:], KV_LEN - SHARED_PAGES * PAGE_SIZE, PAGE_SIZE)
    wrapper = rocade.MultiLevelCascadeAttentionWrapper(2, workspace())
    arrays = (
        [torch.tensor([0, REQUESTS], dtype=torch.int32), qo],
        [prefix.indptr, suffix.indptr],
        [prefix.indices, suffix.indices],
        [prefix.last_page_len, suffix.last_page_len],
    )
    return lambda: wrapper.plan(*arrays, *sizes, PAGE_SIZE)


def bench_plan(report: Report) -> None:
    """Median microseconds of plan(), the wrappers taking turns."""
    calls = plan_calls()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(PLAN_CALLS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    for name, samples in times.items():
        case = f"plan {name}, {REQUESTS} requests"
        report.floor(case, "us", statistics.median(samples) * 1e6, PLAN_FLOOR_US, at_least=False)


def bench_import(report: Report) -> None:
    """What `import rocade` adds to `import torch`, each in a fresh interpreter, in pairs."""
    probe = "import time, torch; t = time.perf_counter(); import rocade; print(time.perf_counter() - t)"
    added = [
        float(
            subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
        )
        for _ in range(IMPORT_RUNS)
    ]
    report.floor(
        "import rocade", "seconds over import torch", statistics.median(added), IMPORT_FLOOR_S, at_least=False
    )
