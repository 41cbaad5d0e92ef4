"""Helpers of the wrapper tests: batches in shuffled pages, the oracle's answers, planned wrappers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.rocade import paged

import rocade
from rocade.conformance import oracle

HEADS, KV_HEADS, DIM, PAGE = 4, 2, 16, 4
SIZES = (HEADS, KV_HEADS, DIM)


@dataclass
class Batch:
    """Queries, keys and values of some requests; `rows` and `keys` are their lengths."""

    rows: Sequence[int]
    keys: Sequence[int]
    dtype: torch.dtype = torch.float32
    seed: int = 0
    q: torch.Tensor = field(init=False)
    k: list[torch.Tensor] = field(init=False)
    v: list[torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.q = paged.rand(sum(self.rows), HEADS, DIM, seed=self.seed, dtype=self.dtype)
        self.k = [
            paged.rand(n, KV_HEADS, DIM, seed=10 + i, dtype=self.dtype) for i, n in enumerate(self.keys)
        ]
        self.v = [
            paged.rand(n, KV_HEADS, DIM, seed=90 + i, dtype=self.dtype) for i, n in enumerate(self.keys)
        ]
        self.pages = paged.put(self.k, self.v, PAGE, seed=self.seed)
        self.qo_indptr = paged.indptr(self.rows)
        self.kv_indptr = paged.indptr(self.keys)

    @property
    def fused(self) -> torch.Tensor:
        """The cache as one 5-D NHD tensor."""
        return torch.stack(self.pages.cache, dim=1)

    def expected(self, masks: Sequence[torch.Tensor] | None = None, **rules: Any) -> oracle.Reference:
        """The oracle's answer; rules are those of `oracle.Rules`."""
        rules.setdefault("scale", DIM**-0.5)
        return oracle.batch(self.q, self.qo_indptr.tolist(), self.k, self.v, oracle.Rules(**rules), masks)

    def check(
        self,
        result: tuple[torch.Tensor, torch.Tensor],
        masks: Sequence[torch.Tensor] | None = None,
        **rules: Any,
    ) -> None:
        """Hold `(out, lse)` to the oracle's answer."""
        paged.assert_matches(result, self.expected(masks, **rules), self.dtype)


def workspace() -> torch.Tensor:
    return torch.empty(1 << 20, dtype=torch.uint8)


FP32 = {"q_data_type": "float32"}
Paged = rocade.BatchPrefillWithPagedKVCacheWrapper
Ragged = rocade.BatchPrefillWithRaggedKVCacheWrapper


def plan_paged(batch: Batch, wrapper: Paged | None = None, **options: Any) -> Paged:
    """Plan a paged prefill wrapper, a new one unless given, for the batch."""
    wrapper = wrapper or Paged(workspace())
    wrapper.plan(batch.qo_indptr, *batch.pages.table, *SIZES, PAGE, **{**FP32, **options})
    return wrapper


def plan_ragged(batch: Batch, wrapper: Ragged | None = None, **options: Any) -> Ragged:
    """Plan a ragged prefill wrapper, a new one unless given, for the batch."""
    wrapper = wrapper or Ragged(workspace())
    wrapper.plan(batch.qo_indptr, batch.kv_indptr, *SIZES, **{**FP32, **options})
    return wrapper


def dense(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """All keys and all values, one request after another."""
    return torch.cat(batch.k), torch.cat(batch.v)


def mixed() -> Batch:
    """Four requests: more keys than queries, an empty one, keys alone, and more queries than keys."""
    return Batch([3, 0, 0, 5], [9, 0, 6, 4])
