"""Fetches a chunk of keys and values of a batch of tiles as fp32, from a page pool or from dense K and V.

Letters: b tiles, n keys of the chunk, H KV heads, D head dim, N pages of the pool, S page size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from rocade._plan import KV
from rocade._problem import Level
from rocade.backends.torch._scratch import Scratch
from rocade.backends.torch._tiles import Batch


class Chunk(NamedTuple):
    """Keys and values `[b, n, H, D]` in fp32. They may be views of the caller's cache; see `writable`."""

    k: torch.Tensor
    v: torch.Tensor
    key: torch.Tensor  # int64 [b, n], counted from the start of the level's range
    first: int  # key[0, 0], known on the host
    writable: bool  # k and v are this run's own
    real: torch.Tensor | None  # bool [b, n]: neither padding nor outside the pool; None when all are


class Gather:
    """Reads one level's keys. Pages outside the pool are never read: their keys count as unseen."""

    def __init__(self, level: Level, kv: KV, whole_pages: int, scratch: Scratch) -> None:
        self._level, self._scratch = level, scratch
        self._page_size = level.pages.page_size if level.pages is not None else 1
        self._by_page = self._page_size <= whole_pages
        self._pools = kv

    def chunk(self, batch: Batch, start: int) -> Chunk:
        """Keys `start` to `start + batch.chunk` from each tile's `key_begin`."""
        if batch.size == 1:
            return self._one(batch, start)
        size = min(batch.chunk, batch.keys - start)
        if self._by_page:
            size = -(-size // self._page_size) * self._page_size
        key, first = self._keys(batch, start, size), int(batch.host.key_begin[0]) + start
        k, v, in_pool = self._read(batch, key)
        if start + size <= batch.shortest:
            return Chunk(k, v, key, first, True, in_pool)
        real = key < batch.tiles.key_last[:, None]
        return Chunk(k, v, key, first, True, real if in_pool is None else real & in_pool)

    def _one(self, batch: Batch, start: int) -> Chunk:
        """A single tile's chunk, trimmed to the keys its rows may see, so that it needs no padding."""
        begin = int(batch.host.key_begin) + start
        first = max(begin, int(batch.host.key_first))
        last = min(begin + batch.chunk, int(batch.host.key_last))
        if self._level.pages is None:
            row = int(batch.host.entry)
            k, v = (self._slice(pool, row + first, last - first, name) for pool, name in self._named())
            return Chunk(k, v, self._keys(batch, start + first - begin, last - first), first, False, None)
        size = last - begin
        if self._by_page:
            size = -(-size // self._page_size) * self._page_size
        key = self._keys(batch, start, size)
        k, v, in_pool = self._read(batch, key)
        part = slice(first - begin, last - begin)
        in_pool = None if in_pool is None else in_pool[:, part]
        return Chunk(k[:, part], v[:, part], key[:, part], first, True, in_pool)

    def _named(self) -> tuple[tuple[torch.Tensor, str], tuple[torch.Tensor, str]]:
        return (self._pools.k, "k"), (self._pools.v, "v")

    def _keys(self, batch: Batch, start: int, size: int) -> torch.Tensor:
        begin = batch.tiles.key_begin
        return begin[:, None] + torch.arange(start, start + size, device=begin.device)

    def _slice(self, pool: torch.Tensor, row: int, size: int, name: str) -> torch.Tensor:
        part = pool[row : row + size][None]
        return part if part.dtype == torch.float32 else self._scratch.like(name, part.shape).copy_(part)

    def _read(
        self, batch: Batch, key: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """K, V and whether each key's page is in the pool (None when all are)."""
        key = torch.minimum(key, batch.tiles.key_last[:, None] - 1)  # padding repeats a key, masked later
        if self._level.pages is None:
            index = (key + batch.tiles.entry[:, None]).flatten()
            k, v = (
                self._rows(pool, index, name).view(*key.shape, *pool.shape[1:])
                for pool, name in self._named()
            )
            return k, v, None
        pages = self._level.pages
        step = self._page_size if self._by_page else 1
        entry = key[:, ::step] // self._page_size + batch.tiles.entry[:, None]
        page = pages.indices[entry].to(torch.int64)
        in_pool: torch.Tensor | None = (page >= 0) & (page < self._pools.k.shape[0])
        assert in_pool is not None
        page = page.where(in_pool, 0)
        if page.device.type == "cpu" and bool(in_pool.all()):
            in_pool = None  # elsewhere the question would wait for the device
        elif self._by_page:
            in_pool = in_pool.repeat_interleave(step, dim=1)
        slot = None if self._by_page else (key % self._page_size).flatten()
        k, v = (
            self._rows(pool, page.flatten(), name, slot).view(*key.shape, *pool.shape[2:])
            for pool, name in self._named()
        )
        return k, v, in_pool

    def _rows(
        self, pool: torch.Tensor, index: torch.Tensor, name: str, slot: torch.Tensor | None = None
    ) -> torch.Tensor:
        """fp32 copy of whole pages or dense rows, or of single slots of large pages."""
        if slot is not None:
            bits = pool.view(torch.uint8) if pool.dtype.itemsize == 1 else pool
            return bits[index, slot].view(pool.dtype).float()
        shape = torch.Size((index.numel(), *pool.shape[1:]))
        if pool.dtype == torch.float32:
            return torch.index_select(pool, 0, index, out=self._scratch.like(name, shape))
        if pool.dtype.itemsize == 1:
            raw = self._scratch.like("raw", shape, torch.uint8)
            torch.index_select(pool.view(torch.uint8), 0, index, out=raw)
        else:
            raw = self._scratch.like("raw", shape, pool.dtype)
            torch.index_select(pool, 0, index, out=raw)
        return self._scratch.like(name, shape).copy_(raw.view(pool.dtype))
