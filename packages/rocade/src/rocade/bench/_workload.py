"""Paged decode workloads: page pools, rotating page tables, and the bytes and flops that they imply.

Letters: B requests, L keys each, H and K query and KV heads, D head size, S page size, R rotating tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

ROTATE_BYTES = 256 << 20  # tables rotate through at least this much K and V, beyond the last-level cache
MAX_TABLES = 32


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, KV heads and head size of a model."""

    qo: int = 32
    kv: int = 8
    dim: int = 128


LLAMA_HEADS = Heads()  # Llama-3-8B, the shape most published decode figures use


def workspace() -> torch.Tensor:
    """What FlashInfer's documentation tells users to give a wrapper: 128 MiB."""
    return torch.empty(128 << 20, dtype=torch.uint8)


@dataclass(frozen=True, slots=True)
class Table:
    """One batch's page table as FlashInfer takes it."""

    indptr: torch.Tensor
    indices: torch.Tensor
    last_page_len: torch.Tensor


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """A pool `[N, 2, S, K, D]`, R disjoint or wrapping tables over it, and one query per request."""

    cache: torch.Tensor
    tables: tuple[Table, ...]
    q: torch.Tensor  # [B, H, D]
    kv_len: int
    page_size: int
    heads: Heads

    @property
    def bytes(self) -> int:
        """K and V that one decode step has to read."""
        batch = self.q.shape[0]
        return 2 * batch * self.kv_len * self.heads.kv * self.heads.dim * self.cache.element_size()


def page_table(pages: torch.Tensor, kv_len: int, page_size: int) -> Table:
    """Table of B requests of equal length from page ids `[B, pages per request]`."""
    batch, per_request = pages.shape
    indptr = torch.arange(0, (batch + 1) * per_request, per_request, dtype=torch.int32)
    last = torch.full((batch,), (kv_len - 1) % page_size + 1, dtype=torch.int32)
    return Table(indptr, pages.reshape(-1).to(torch.int32).contiguous(), last)


def paged_batch(batch: int, kv_len: int, dtype: torch.dtype, heads: Heads, page_size: int = 16) -> PagedBatch:
    """Random K, V and q; pages scattered over the pool, as in a serving engine that has run a while."""
    per_request = -(-kv_len // page_size)
    step_bytes = 2 * batch * per_request * page_size * heads.kv * heads.dim * dtype.itemsize
    count = min(MAX_TABLES, max(1, -(-ROTATE_BYTES // step_bytes)))
    pool = count * batch * per_request
    cache = torch.empty(pool, 2, page_size, heads.kv, heads.dim, dtype=dtype)
    filler = torch.randn(1 << 20).to(dtype)
    flat = cache.view(-1)
    for start in range(0, flat.numel(), filler.numel()):
        part = flat[start : start + filler.numel()]
        part.copy_(filler[: part.numel()])
    order = torch.randperm(pool).reshape(count, batch, per_request)
    tables = tuple(page_table(order[i], kv_len, page_size) for i in range(count))
    q = torch.randn(batch, heads.qo, heads.dim).to(dtype)
    return PagedBatch(cache, tables, q, kv_len, page_size, heads)
