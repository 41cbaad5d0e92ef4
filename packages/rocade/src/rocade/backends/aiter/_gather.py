"""Flat gather: K and V of a page pool as dense rows, request after request, for kernels that know no pages.

Letters: N pages of the pool, S page size, n keys of all requests, B requests, Hkv heads, D head dims.
"""

from __future__ import annotations

import torch

from rocade._plan import KV
from rocade._problem import Level


class FlatGather:
    """Where each dense row comes from, found at plan. A run copies all keys and values of the batch.

    `kv_indptr` int32 `[B + 1]`, host: the rows of request i are `kv_indptr[i]:kv_indptr[i + 1]`.
    """

    __slots__ = ("_checked", "_entry", "_indices", "_slot", "kv_indptr", "num_rows")

    def __init__(self, level: Level, device: torch.device) -> None:
        """Plan for a paged level, whose page ids are read anew by every run."""
        pages = level.pages
        assert pages is not None, "dense keys need no gather"
        lengths = level.kv_len.to(torch.int64)
        indptr = torch.zeros(lengths.numel() + 1, dtype=torch.int64, device="cpu")
        torch.cumsum(lengths, 0, out=indptr[1:])
        self.kv_indptr = indptr.to(torch.int32)
        self.num_rows = int(indptr[-1])
        # Row r of request i is key r - indptr[i] of it, in the page that its table names at key // S.
        key = torch.arange(self.num_rows, device="cpu") - indptr[:-1].repeat_interleave(lengths)
        first = pages.indptr[:-1].to(torch.int64).repeat_interleave(lengths)
        size = pages.page_size
        self._entry = (first + key // size).to(device)
        self._slot = (key % size).to(device)
        self._indices = pages.indices
        self._checked = pages.max_page >= 0  # the wrapper compares it with the pool

    def dense(self, kv: KV) -> KV:
        """Contiguous K and V `[n, Hkv, D]` out of pools `[N, S, Hkv, D]` of any strides.

        Keys in a page outside the pool, which a table on a device may name unseen, are NaN, as the results of
        their requests are then: these kernels cannot leave a key out, and a number would be a wrong one.
        """
        page = self._indices[self._entry].to(torch.int64)
        if self._checked or not self.num_rows:
            return KV(self._rows(kv.k, page), self._rows(kv.v, page))
        pages = kv.k.shape[0]
        outside = (page < 0) | (page >= pages)
        page = page.masked_fill(outside, 0)
        outside = outside[:, None, None]
        if pages == 0:  # nothing to read at all
            k, v = (x.new_zeros((self.num_rows, *x.shape[2:])) for x in kv)
        else:
            k, v = self._rows(kv.k, page), self._rows(kv.v, page)
        return KV(k.masked_fill_(outside, torch.nan), v.masked_fill_(outside, torch.nan))

    def _rows(self, pool: torch.Tensor, page: torch.Tensor) -> torch.Tensor:
        if not self.num_rows:
            return pool.new_empty((0, *pool.shape[2:]))
        return pool[page, self._slot].contiguous()
