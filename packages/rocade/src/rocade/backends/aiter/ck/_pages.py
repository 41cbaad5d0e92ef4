"""Page tables as mha_batch_prefill takes them: it believes every page id, so ids are made safe before.

Letters: B requests, P entries of the table, T query rows, Hq query heads, D head dim.
"""

from __future__ import annotations

import torch

from rocade._problem import Level


class PagesInPlace:
    """The table of one plan on the device. The page ids are read anew by every run."""

    __slots__ = ("_checked", "_ids", "_request_of_row", "indptr", "last_page_len")

    def __init__(self, level: Level, device: torch.device) -> None:
        pages = level.pages
        assert pages is not None, "dense keys have no table"
        self.indptr = pages.indptr.to(device)  # int32 [B + 1]
        # Of a request without pages AITER computes page_size * (0 - 1) + last_page_len keys: that is to be 0.
        last = torch.where(level.kv_len > 0, pages.last_page_len, pages.page_size)
        self.last_page_len = last.to(torch.int32).to(device)  # [B]
        self._ids = pages.indices
        # The wrapper compares the largest id with the pool where it knows it.
        self._checked = pages.max_page >= 0
        requests = torch.arange(level.num_requests, device="cpu")
        lengths = level.qo_indptr.diff().to(torch.int64)
        self._request_of_row = requests.repeat_interleave(lengths).to(device)

    def ids(self, num_pages: int) -> torch.Tensor:
        """int32 `[P]`; an id outside the pool is 0, and the run is to `spoil` what came of it."""
        if self._checked:
            return self._ids
        return self._ids.masked_fill(self._outside(num_pages), 0)

    def spoil(self, out: torch.Tensor, natural: torch.Tensor | None, num_pages: int) -> None:
        """Make NaN the results `out [T, Hq, D]`, `natural [Hq, T]` of requests with a page outside the pool.

        A number there would be a wrong one, and leaving out one page's keys is nothing that AITER can do.
        """
        if self._checked:
            return
        count = torch.zeros(self._ids.numel() + 1, dtype=torch.int32, device=out.device)
        torch.cumsum(self._outside(num_pages), 0, dtype=torch.int32, out=count[1:])
        spoilt = count[self.indptr.long()].diff() > 0
        rows = spoilt[self._request_of_row]
        out.masked_fill_(rows[:, None, None], torch.nan)
        if natural is not None:
            natural.masked_fill_(rows, torch.nan)

    def _outside(self, num_pages: int) -> torch.Tensor:
        return (self._ids < 0) | (self._ids >= num_pages)
