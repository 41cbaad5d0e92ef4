"""Query rows that see no key. AITER gives them lse +inf, NaN or nothing; by our contract O = 0, LSE = -inf.

Letters: T query rows, Hq query heads, D head dims.
"""

from __future__ import annotations

import torch

from arch_caps import MaskKind, Request
from rocade._problem import Level


def skipped(request: Request, level: Level) -> torch.Tensor:
    """Int64 `[B]`, host: how many rows at the start of each request see no key.

    All rows of a request without keys; else, if causal, those before its first key. A window hides no row's
    every key: it has no right bound, and its left one lies left of the last key.
    """
    rows = level.qo_indptr.diff().to(torch.int64)
    keys = level.kv_len.to(torch.int64)
    early = (rows - keys).clamp_min(0) if request.mask is MaskKind.CAUSAL else torch.zeros_like(rows)
    return torch.where(keys > 0, early, rows)


def unseen_rows(request: Request, level: Level) -> torch.Tensor | None:
    """Int64, host: the rows that see no key, or None, which is usual."""
    count = skipped(request, level)
    total = int(count.sum())
    if not total:
        return None
    first = level.qo_indptr[:-1].to(torch.int64) - (count.cumsum(0) - count)
    return first.repeat_interleave(count) + torch.arange(total, device="cpu")


def clear(rows: torch.Tensor, out: torch.Tensor, lse: torch.Tensor | None) -> None:
    """Set the results `out [T, Hq, D]`, `lse [T, Hq]` of rows, int64 on their device, to those of no key."""
    out.index_fill_(0, rows, 0.0)
    if lse is not None:
        lse.index_fill_(0, rows, float("-inf"))
