"""`Problem`: the plan arrays of one call, checked and on the host. Shapes and flags are in `Request`.

Letters: B requests, T query rows (tokens), P pages of one level's table.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rocade._mask import PackedMask


@dataclass(frozen=True, slots=True)
class PageTable:
    """The pages of each request. `indptr[0]` may be above 0, and `indices` longer than `indptr[-1]`."""

    indptr: torch.Tensor  # int32 [B + 1], host
    indices: torch.Tensor  # int32 [>= indptr[-1]], on the cache's device; read again at every run
    last_page_len: torch.Tensor  # int32 [B], host; 1..page_size, ignored for a request without pages
    page_size: int
    max_page: int  # largest page id in use, -1 if none or not known; run compares it with the pool


@dataclass(frozen=True, slots=True)
class Level:
    """One range of keys per query row: paged (`pages`) or rows of dense K and V (`kv_indptr`)."""

    qo_indptr: torch.Tensor  # int32 [B + 1], host, starts at 0
    kv_len: torch.Tensor  # int32 [B], host
    pages: PageTable | None = None
    kv_indptr: torch.Tensor | None = None  # int32 [B + 1], host; set when pages is None

    @property
    def num_requests(self) -> int:
        """Requests of this level; a shared prefix counts once."""
        return self.kv_len.numel()


@dataclass(frozen=True, slots=True)
class Problem:
    """Levels from the most widely shared prefix to each request's own suffix; one level unless cascade.

    All levels cover the same T rows, and a level's boundaries are boundaries of the next one (nesting). The
    levels of a row are one concatenated sequence: positions, window and causal are global.
    """

    levels: tuple[Level, ...]
    num_rows: int  # T
    device: torch.device
    mask: PackedMask | None = None  # over the concatenated keys; only with one level
    workspace: torch.Tensor | None = None  # uint8, the caller's; used when large enough
