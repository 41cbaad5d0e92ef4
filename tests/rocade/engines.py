"""Helper of the integrator tests: an engine's requests, and attention as the formula says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from tests.rocade import paged

HQ, HKV, D = 4, 2, 16


def plain(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = True,
    scale: float | None = None,
    **extra: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one request as the formula says, in fp64; the LSE is in base 2."""
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    logits = (
        torch.einsum("qhd,khd->hqk", q, k) * (D**-0.5 if scale is None else scale) * extra.get("k_scale", 1.0)
    )
    cap, window = extra.get("cap", 0.0), int(extra.get("window", -1))
    if cap:
        logits = cap * torch.tanh(logits / cap)
    row, key = torch.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0], torch.arange(k.shape[0])[None]
    hidden = (key > row) if causal else torch.zeros_like(row + key, dtype=torch.bool)
    if window >= 0:
        hidden = hidden | (key < row - window)
    logits = logits.masked_fill(hidden, float("-inf"))
    out = torch.einsum("hqk,khd->qhd", logits.softmax(-1), v) * extra.get("v_scale", 1.0)
    return out, logits.logsumexp(-1).T / math.log(2)


class Engine:
    """Requests of an engine: query rows, keys and values, and a page pool that holds them."""

    def __init__(
        self, rows: Sequence[int], keys: Sequence[int], page: int, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        self.rows, self.keys, self.page, self.dtype = rows, keys, page, dtype
        self.q = paged.rand(sum(rows), HQ, D, dtype=dtype)
        self.k = [paged.rand(n, HKV, D, seed=i + 1, dtype=dtype) for i, n in enumerate(keys)]
        self.v = [paged.rand(n, HKV, D, seed=i + 51, dtype=dtype) for i, n in enumerate(keys)]
        self.pages = paged.put(self.k, self.v, page)
        self.qo_indptr = paged.indptr(rows)
        self.starts = self.qo_indptr.tolist()

    @property
    def pool(self) -> torch.Tensor:
        """5-D NHD pool."""
        return torch.stack(self.pages.cache, 1)

    def expected(self, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        parts = [
            plain(self.q[a:b], k, v, **options)
            for a, b, k, v in zip(self.starts, self.starts[1:], self.k, self.v, strict=False)
        ]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    def check(self, out: torch.Tensor, **options: Any) -> None:
        tolerance = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[self.dtype]
        assert out.dtype is self.dtype
        torch.testing.assert_close(out.double(), self.expected(**options)[0], rtol=tolerance, atol=tolerance)


def workspace(size: int = 1 << 20) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.uint8)
