"""append_paged_kv_cache on a GPU: rocade beside FlashInfer and beside a device copy of the same bytes.

Letters: B requests, T new tokens a request, H KV heads, D head dims, S page size, P pages a request, R sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

import rocade
from rocade.bench._gpu_case import COPY, OURS, Case, Floors, bench, buffer_sets
from rocade.bench._gpu_clock import Clock
from rocade.bench._gpu_peer import NAME as PEER
from rocade.bench._gpu_peer import Library, Peer
from rocade.bench._gpu_states import copies
from rocade.bench._report import Report
from rocade.bench._timing import Call

HEADS, DIM, PAGE = 8, 128, 16
COPY_SHARE = 0.92
NO_ROW_BELOW = 0.97  # of FlashInfer's speed, any token count
EAGER = 1.0
LARGE_TOKENS = 16384
# Requests, tokens already there, new tokens a request: decode steps of growing batches, then prefills.
SHAPES = ((64, 1023, 1), (256, 1023, 1), (1024, 1023, 1), (16, 0, 1024), (64, 0, 2048))


@dataclass(frozen=True, slots=True)
class Shape:
    """New tokens of equal number for each request."""

    batch: int
    past: int
    new: int
    dtype: torch.dtype

    @property
    def tokens(self) -> int:
        """New tokens in all."""
        return self.batch * self.new

    @property
    def name(self) -> str:
        """Name in the report."""
        kind = str(self.dtype).removeprefix("torch.")
        return f"append {kind} {self.batch} x {self.new} tokens x {HEADS} x {DIM}"

    @property
    def moved(self) -> int:
        """Bytes of one call: K and V read and written, and two indices a token."""
        return self.tokens * (4 * HEADS * DIM * self.dtype.itemsize + 8)

    @property
    def floors(self) -> Floors:
        """Many tokens promise bandwidth, few a cheap call."""
        if self.tokens >= LARGE_TOKENS:
            return Floors(peer=NO_ROW_BELOW, copy=COPY_SHARE)
        return Floors(peer=NO_ROW_BELOW, eager=EAGER)


class Append:
    """A pool of pages, and R sets of tokens and tables that write to pages of their own."""

    def __init__(self, shape: Shape, sets: int, device: torch.device) -> None:
        self.shape = shape
        batch, new = shape.batch, shape.new
        pages = -(-(shape.past + new) // PAGE)
        first = shape.past // PAGE  # earlier pages of a request are not touched: any numbers do
        pool = sets * batch * (pages - first)
        self.cache = torch.zeros(pool, 2, PAGE, HEADS, DIM, dtype=shape.dtype, device=device)
        written = torch.randperm(pool, device=device, dtype=torch.int32).view(sets, batch, pages - first)
        table = torch.randint(0, pool, (sets, batch, pages), dtype=torch.int32, device=device)
        table[:, :, first:] = written
        self.indices = table.view(sets, -1)
        self.indptr = torch.arange(0, (batch + 1) * pages, pages, dtype=torch.int32, device=device)
        last = (shape.past + new - 1) % PAGE + 1
        self.last = torch.full((batch,), last, dtype=torch.int32, device=device)
        requests = torch.arange(batch, dtype=torch.int32, device=device)
        self.requests = requests.repeat_interleave(new)
        self.positions = torch.arange(shape.past, shape.past + new, dtype=torch.int32, device=device).repeat(
            batch
        )
        tokens = (sets, shape.tokens, HEADS, DIM)
        self.key, self.value = (torch.randn(tokens, dtype=shape.dtype, device=device) for _ in range(2))

    def calls(self, library: Library) -> Call:
        """The library's append on the set of a turn."""
        append: Callable[..., None] = library.append_paged_kv_cache
        sets = self.indices.shape[0]
        common = (self.requests, self.positions, self.cache)
        given = [
            (self.key[i], self.value[i], *common, self.indices[i], self.indptr, self.last)
            for i in range(sets)
        ]
        return lambda turn: append(*given[turn % sets])

    def wrong_elements(self, library: Library) -> int:
        """Elements of the pool that are not bit for bit what the first set should leave there."""
        size = {2: torch.int16, 4: torch.int32}[self.shape.dtype.itemsize]
        self.cache.view(size).fill_(-1)  # a NaN in every float type
        expected = self.cache.clone()
        slot = self.indptr[self.requests] + self.positions // PAGE
        page = self.indices[0][slot].long()
        expected[page, 0, (self.positions % PAGE).long()] = self.key[0]
        expected[page, 1, (self.positions % PAGE).long()] = self.value[0]
        self.calls(library)(0)
        return int((self.cache.view(size) != expected.view(size)).sum())


def bench_append(report: Report, clock: Clock, peer: Peer, dtype: torch.dtype, device: torch.device) -> None:
    """Every case: check the whole pool, then time."""
    for batch, past, new in SHAPES:
        shape = Shape(batch, past, new, dtype)
        sets = buffer_sets(shape.moved, clock.cache_bytes)
        work = Append(shape, sets, device)
        libraries: dict[str, Library] = {OURS: rocade}
        if peer.present:
            libraries[PEER] = peer.module
        for name, library in libraries.items():
            report.wrong(f"{shape.name}, {name}, elements of the pool", work.wrong_elements(library), 0)
        calls = {name: work.calls(library) for name, library in libraries.items()}
        calls[COPY] = copies(shape.moved, sets, device)
        bench(report, clock, Case(shape.name, shape.moved, sets, shape.floors), calls)
