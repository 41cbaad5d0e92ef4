"""Paged decode on a GPU: rocade beside both of FlashInfer's kernels, on CUDA cores and on tensor cores.

Letters: B requests, K KV heads, D head dims, N pages of S tokens, R page tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

import rocade
from rocade.bench import _gpu_attention
from rocade.bench._gpu_case import COPY, OURS, Case, Floors, bench, buffer_sets
from rocade.bench._gpu_clock import Clock
from rocade.bench._gpu_peer import NAME as PEER
from rocade.bench._gpu_peer import Library, Peer
from rocade.bench._gpu_states import State, copies
from rocade.bench._report import Report
from rocade.bench._timing import Call
from rocade.bench._workload import Heads, Table, page_table

Wrapper: TypeAlias = Any  # a decode wrapper of either library

PAGE = 16
WORKSPACE_BYTES = 128 << 20
PEER_FLOOR = 0.98
SMALL_FLOOR = 1.10  # at most this many tokens in all, where FlashInfer leaves most open
RUN_US = 15.0  # CPU time of run()


@dataclass(frozen=True, slots=True)
class Shape:
    """B requests of `kv_len` keys, one query token each."""

    batch: int
    kv_len: int
    heads: Heads
    floor: float = PEER_FLOOR

    @property
    def name(self) -> str:
        """Name in the report, without the dtype."""
        return f"{self.batch} x {self.kv_len}, {self.heads.qo}/{self.heads.kv} x {self.heads.dim}"

    @property
    def pages(self) -> int:
        """Pages a request."""
        return -(-self.kv_len // PAGE)

    def moved(self, dtype: torch.dtype) -> int:
        """Bytes of one call: K and V once, q and out."""
        rows = 2 * self.batch * (self.kv_len * self.heads.kv + self.heads.qo)
        return rows * self.heads.dim * dtype.itemsize


# FlashInfer's published shapes and a few like them, then small ones that were chosen before any was measured.
SHAPES = (
    Shape(64, 4096, Heads(32, 8)),
    Shape(16, 8192, Heads(32, 8)),
    Shape(128, 2048, Heads(32, 32)),
    Shape(1, 32768, Heads(32, 8), SMALL_FLOOR),
    Shape(64, 4096, Heads(32, 4)),
    Shape(64, 2048, Heads(64, 8)),
    Shape(8, 131072, Heads(64, 8)),
    Shape(1, 8192, Heads(32, 8), SMALL_FLOOR),
    Shape(8, 2048, Heads(32, 8), SMALL_FLOOR),
    Shape(32, 1024, Heads(32, 8), SMALL_FLOOR),
)


class Decode:
    """A pool `[N, 2, S, K, D]` and R page tables of their own pages in it, in random order."""

    def __init__(self, shape: Shape, sets: int, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        heads, count = shape.heads, sets * shape.batch * shape.pages
        self.cache = torch.randn(count, 2, PAGE, heads.kv, heads.dim, dtype=dtype, device=device)
        pages = torch.randperm(count, dtype=torch.int32).view(sets, shape.batch, shape.pages)
        self.tables = [page_table(pages[i], shape.kv_len, PAGE) for i in range(sets)]
        size = (sets, shape.batch, heads.qo, heads.dim)
        self.q = torch.randn(size, dtype=dtype, device=device)
        self.out = torch.full_like(self.q, float("nan"))

    def wrappers(self, library: Library, **options: bool) -> list[Wrapper]:
        """The library's decode wrapper, planned for each table."""
        return [self._wrapper(library, table, options) for table in self.tables]

    def _wrapper(self, library: Library, table: Table, options: dict[str, bool]) -> Wrapper:
        space = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=self.device)
        wrapper = library.BatchDecodeWithPagedKVCacheWrapper(space, "NHD", **options)
        heads = self.shape.heads
        arrays = (table.indptr, table.indices.to(self.device), table.last_page_len)
        kinds = {"q_data_type": self.dtype, "kv_data_type": self.dtype}
        wrapper.plan(*arrays, heads.qo, heads.kv, heads.dim, PAGE, **kinds)
        return wrapper

    def calls(self, wrappers: Sequence[Wrapper]) -> Call:
        """run() on the table, the queries and the output of a turn."""
        given = list(zip(wrappers, self.q, self.out, strict=True))
        cache, count = self.cache, len(given)

        def call(turn: int) -> torch.Tensor:
            wrapper, q, out = given[turn % count]
            result: torch.Tensor = wrapper.run(q, cache, out=out)
            return result

        return call

    def check(self, report: Report, case: str, name: str, wrapper: Wrapper) -> None:
        """The first and the last request of the first table against fp64."""
        out, lse = wrapper.run(self.q[0], self.cache, return_lse=True)
        pages = self.tables[0].indices.view(self.shape.batch, -1)
        for b in {0, self.shape.batch - 1}:
            kv = self.cache[pages[b].to(self.device).long()].transpose(0, 1).flatten(1, 2)
            k, v = kv[:, : self.shape.kv_len]
            expected = _gpu_attention.reference(self.q[0, b : b + 1], k, v, causal=False)
            got: State = (out[b : b + 1], lse[b : b + 1])
            _gpu_attention.check(report, f"{case}, request {b}", name, got, expected)


def bench_decode(report: Report, clock: Clock, peer: Peer, dtype: torch.dtype, device: torch.device) -> None:
    """Every shape: check, then time."""
    kind = str(dtype).removeprefix("torch.")
    for shape in SHAPES:
        case = f"decode {kind} {shape.name}"
        moved = shape.moved(dtype)
        sets = buffer_sets(moved, clock.cache_bytes)
        work = Decode(shape, sets, dtype, device)
        wrappers = {OURS: work.wrappers(rocade)}
        if peer.present:
            wrappers[f"{PEER} cuda cores"] = work.wrappers(peer.module, use_tensor_cores=False)
            wrappers[f"{PEER} tensor cores"] = work.wrappers(peer.module, use_tensor_cores=True)
        for name, planned in wrappers.items():
            work.check(report, case, name, planned[0])
        calls = {name: work.calls(planned) for name, planned in wrappers.items()}
        calls[COPY] = copies(moved, sets, device)
        bench(report, clock, Case(case, moved, sets, Floors(peer=shape.floor, host_us=RUN_US)), calls)
