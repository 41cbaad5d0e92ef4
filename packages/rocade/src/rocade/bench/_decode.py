"""Paged decode and cascade decode on the CPU, beside PyTorch and beside rocade without sharing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

import rocade
from rocade.bench._machine import Machine
from rocade.bench._peers import TorchDecode
from rocade.bench._report import Report
from rocade.bench._timing import Samples, compete
from rocade.bench._workload import LLAMA_HEADS, Heads, PagedBatch, Table, page_table, paged_batch, workspace

# Native decode against the best PyTorch formulation, by dtype; and its share of read bandwidth in fp32.
SPEEDUP_FLOOR = {torch.float32: 2.0, torch.bfloat16: 3.0, torch.float16: 3.5}
BANDWIDTH_FLOOR = 0.45
CASCADE_BOUND = 1.9  # at most this many times the machine's own limit
CASCADE_SPEEDUP = 5.0  # against the best PyTorch formulation without sharing
SHARING_FLOOR = 0.95  # sharing, where chosen, against the same plan without it
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
GATHER = "torch gather + SDPA"

Call = Callable[[int], torch.Tensor]


def decode_calls(batch: PagedBatch) -> Call:
    """Run of rocade's decode wrapper, planned once for each rotating table."""
    return _turns([_decode_wrapper(batch, table) for table in batch.tables], batch)


def _turns(wrappers: list[rocade.BatchDecodeWithPagedKVCacheWrapper], batch: PagedBatch) -> Call:
    out = torch.empty_like(batch.q)
    return lambda turn: wrappers[turn % len(wrappers)].run(batch.q, batch.cache, out=out)


def _decode_wrapper(batch: PagedBatch, table: Table) -> rocade.BatchDecodeWithPagedKVCacheWrapper:
    heads, dtype = batch.heads, batch.cache.dtype
    wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace())
    wrapper.plan(
        table.indptr,
        table.indices,
        table.last_page_len,
        heads.qo,
        heads.kv,
        heads.dim,
        batch.page_size,
        q_data_type=dtype,
        kv_data_type=dtype,
    )
    return wrapper


def bench_decode(report: Report, machine: Machine, dtype: torch.dtype, batch: int, kv_len: int) -> None:
    """One decode row: rocade against each PyTorch formulation."""
    work = paged_batch(batch, kv_len, dtype, LLAMA_HEADS)
    peers = TorchDecode(work).calls()
    calls = {"rocade": decode_calls(work), **peers}
    case = f"decode {str(dtype).removeprefix('torch.')} {batch} x {kv_len}"
    _compare(report, case, calls, dtype)
    samples = compete(calls, sparing=[GATHER])
    best = samples.fastest(list(peers))
    share = work.bytes / samples.median("rocade") / machine.read
    report.figure(
        case,
        **{f"{name} ms": samples.median(name) * 1e3 for name in calls},
        rounds=len(samples.rounds),
        read_share=share,
    )
    report.floor(case, f"speed-up over {best}", samples.ratio(best, "rocade"), SPEEDUP_FLOOR[dtype])
    if dtype == torch.float32:
        report.floor(case, "share of read bandwidth", share, BANDWIDTH_FLOOR)


@dataclass(frozen=True, slots=True)
class Shared:
    """One prefix of `prefix` tokens shared by `batch` requests, each with `suffix` tokens of its own."""

    batch: int
    prefix: int
    suffix: int
    dtype: torch.dtype
    heads: Heads = LLAMA_HEADS

    @property
    def case(self) -> str:
        """Name in the report."""
        kind = str(self.dtype).removeprefix("torch.")
        return (
            f"cascade {kind} {self.batch} x ({self.prefix} + {self.suffix}) {self.heads.qo}/{self.heads.kv}"
        )

    def bound(self, machine: Machine) -> float:
        """Seconds that the machine needs at least: the prefix's products, or the bytes of K and V."""
        heads = self.heads
        flops = 4 * self.batch * heads.qo * self.prefix * heads.dim
        token_bytes = 2 * heads.kv * heads.dim * self.dtype.itemsize
        bytes_read = (self.prefix + self.batch * self.suffix) * token_bytes
        return max(flops / machine.matmul, bytes_read / machine.read)


def shared_batch(shared: Shared, page_size: int = 16) -> tuple[PagedBatch, Table, Table]:
    """The flat batch (prefix pages repeated in every table row), the prefix table and the suffix table."""
    flat = paged_batch(shared.batch, shared.prefix + shared.suffix, shared.dtype, shared.heads, page_size)
    prefix_pages = shared.prefix // page_size
    pages = flat.tables[0].indices.view(shared.batch, -1).clone()
    pages[:, :prefix_pages] = pages[0, :prefix_pages]
    table = page_table(pages, flat.kv_len, page_size)
    flat = PagedBatch(flat.cache, (table,), flat.q, flat.kv_len, page_size, shared.heads)
    prefix = page_table(pages[:1, :prefix_pages], shared.prefix, page_size)
    suffix = page_table(pages[:, prefix_pages:], shared.suffix, page_size)
    return flat, prefix, suffix


def cascade_call(flat: PagedBatch, prefix: Table, suffix: Table) -> Call:
    """Run of the two-level cascade wrapper."""
    heads, dtype, count = flat.heads, flat.cache.dtype, flat.q.shape[0]
    wrapper = rocade.MultiLevelCascadeAttentionWrapper(2, workspace())
    wrapper.plan(
        [torch.tensor([0, count], dtype=torch.int32), torch.arange(count + 1, dtype=torch.int32)],
        [prefix.indptr, suffix.indptr],
        [prefix.indices, suffix.indices],
        [prefix.last_page_len, suffix.last_page_len],
        heads.qo,
        heads.kv,
        heads.dim,
        flat.page_size,
        q_data_type=dtype,
        kv_data_type=dtype,
    )
    out = torch.empty_like(flat.q)
    return lambda _: wrapper.run(flat.q, flat.cache, out=out)


def bench_cascade(report: Report, machine: Machine, shared: Shared, *, floors: bool) -> None:
    """One cascade row: against the machine's limit, PyTorch without sharing, and rocade without sharing."""
    flat, prefix, suffix = shared_batch(shared)
    ours: dict[str, Call] = {"cascade": cascade_call(flat, prefix, suffix), "no sharing": decode_calls(flat)}
    peers = TorchDecode(flat).calls() if floors else {}
    peers.pop(GATHER, None)  # tens of seconds a call at these sizes
    calls = {**ours, **peers}
    _compare(report, shared.case, calls, shared.dtype)
    samples = compete(calls, min_rounds=9)
    bound = shared.bound(machine)
    report.figure(
        shared.case,
        **{f"{name} ms": samples.median(name) * 1e3 for name in calls},
        bound_ms=bound * 1e3,
        rounds=len(samples.rounds),
    )
    report.floor(shared.case, "no sharing / cascade", samples.ratio("no sharing", "cascade"), SHARING_FLOOR)
    if floors:
        _cascade_floors(report, shared.case, samples, list(peers), bound)


def _cascade_floors(report: Report, case: str, samples: Samples, peers: list[str], bound: float) -> None:
    best = samples.fastest(peers)
    report.floor(case, "time / bound", samples.median("cascade") / bound, CASCADE_BOUND, at_least=False)
    report.floor(case, f"speed-up over {best}, unshared", samples.ratio(best, "cascade"), CASCADE_SPEEDUP)


def _compare(report: Report, case: str, calls: dict[str, Call], dtype: torch.dtype) -> None:
    """All contenders must give the same answer before any of them is timed."""
    results = {name: call(0).float().clone() for name, call in calls.items()}
    first = next(iter(results))
    for name, result in results.items():
        error = float((result - results[first]).abs().max())
        report.wrong(f"{case}, {first} against {name}", error, TOLERANCE[dtype])
