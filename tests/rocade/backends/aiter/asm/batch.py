"""Batches for the tests of backend `aiter_asm`: tensors, calls of the public API, and the oracle's answer."""

from __future__ import annotations

from itertools import accumulate, product
from typing import Any

import torch

import rocade
from arch_caps import DType
from rocade.conformance import tolerances
from rocade.conformance.cases import DTypes
from rocade.conformance.oracle import Reference, Rules
from rocade.conformance.oracle import batch as oracle_batch

TARGETS = ("gfx942", "gfx950")
BF16 = DTypes(DType.BF16, DType.BF16, DType.BF16)
DIM = 128
Results = tuple[torch.Tensor, torch.Tensor]


def lengths() -> list[tuple[int, int]]:
    """All pairs of rows and keys around the edges of tiles and instructions."""
    edges = (1, 31, 32, 33, 63, 65, 129, 257)
    return list(product(edges, edges))


class Batch:
    """Random bf16 Q, K and V `[rows, heads, 128]` for requests of given (query rows, keys)."""

    def __init__(self, lens: list[tuple[int, int]], heads: tuple[int, int]) -> None:
        generator = torch.Generator().manual_seed(len(lens) * 1000 + lens[0][0])
        self.lens, self.heads = lens, heads
        self.qo_indptr = list(accumulate((rows for rows, _ in lens), initial=0))
        self.kv_indptr = list(accumulate((keys for _, keys in lens), initial=0))

        def some(rows: int, count: int) -> torch.Tensor:
            return torch.randn(rows, count, DIM, generator=generator).to(torch.bfloat16)

        self.q = some(self.qo_indptr[-1], heads[0])
        self.k, self.v = (some(self.kv_indptr[-1], heads[1]) for _ in range(2))

    def planned(
        self, backend: str, *, causal: bool, window: int = -1, scale: float | None = None
    ) -> rocade.BatchPrefillWithRaggedKVCacheWrapper:
        """A wrapper for these lengths."""
        workspace = torch.empty(1 << 20, dtype=torch.uint8)
        wrapper = rocade.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", backend=backend)
        wrapper.plan(
            torch.tensor(self.qo_indptr, dtype=torch.int32),
            torch.tensor(self.kv_indptr, dtype=torch.int32),
            *self.heads,
            DIM,
            causal=causal,
            window_left=window,
            sm_scale=scale,
            q_data_type=torch.bfloat16,
        )
        return wrapper

    def ragged(
        self,
        target: str,
        backend: str,
        *,
        causal: bool,
        window: int = -1,
        scale: float | None = None,
        v_scale: float | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        **options: Any,
    ) -> Results:
        """One call on dense keys; `options` are of `rocade.emulate`."""
        with rocade.emulate(target, **options):
            wrapper = self.planned(backend, causal=causal, window=window, scale=scale)
            found: Results = wrapper.run(
                self.q, self.k, self.v, v_scale=v_scale, out=out, lse=lse, return_lse=True
            )
        return found

    def pool(self, page_size: int, layout: str) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """K and V in pages in an order of chance, the rest of them NaN; indptr, page ids, last lengths."""
        counts = [-(-keys // page_size) for _, keys in self.lens]
        total = sum(counts)
        ids = torch.randperm(total + 2, generator=torch.Generator().manual_seed(1))[:total]
        pools = []
        for dense in (self.k, self.v):
            pool = torch.full((total + 2, page_size, self.heads[1], DIM), float("nan"), dtype=torch.bfloat16)
            page = 0
            for first, (_, keys) in zip(self.kv_indptr, self.lens, strict=False):
                for key in range(keys):
                    pool[ids[page + key // page_size], key % page_size] = dense[first + key]
                page += -(-keys // page_size)
            pools.append(pool if layout == "NHD" else pool.transpose(1, 2).contiguous())
        last = [(keys - 1) % page_size + 1 if keys else 1 for _, keys in self.lens]
        arrays = [list(accumulate(counts, initial=0)), ids.tolist(), last]
        return pools[0], pools[1], [torch.tensor(array, dtype=torch.int32) for array in arrays]

    def paged(self, target: str, backend: str, page_size: int, layout: str, *, causal: bool) -> Results:
        """One call on a page pool."""
        k, v, arrays = self.pool(page_size, layout)
        with rocade.emulate(target):
            workspace = torch.empty(1 << 20, dtype=torch.uint8)
            wrapper = rocade.BatchPrefillWithPagedKVCacheWrapper(workspace, layout, backend=backend)
            indptr = torch.tensor(self.qo_indptr, dtype=torch.int32)
            wrapper.plan(
                indptr, *arrays, *self.heads, DIM, page_size, causal=causal, q_data_type=torch.bfloat16
            )
            found: Results = wrapper.run(self.q, (k, v), return_lse=True)
        return found

    def decode(self, target: str, backend: str, page_size: int) -> Results:
        """One query a request on a page pool."""
        k, v, arrays = self.pool(page_size, "NHD")
        with rocade.emulate(target):
            workspace = torch.empty(1 << 20, dtype=torch.uint8)
            wrapper = rocade.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", backend=backend)
            wrapper.plan(*arrays, *self.heads, DIM, page_size, q_data_type=torch.bfloat16)
            found: Results = wrapper.run(self.q, (k, v), return_lse=True)
        return found

    def oracle(
        self, *, causal: bool, window: int = -1, scale: float | None = None, v_scale: float | None = None
    ) -> Reference:
        """The answer in fp64."""
        factor = DIM**-0.5 if scale is None else scale
        rules = Rules(factor, causal=causal, window_left=window, v_scale=v_scale or 1.0)
        spans = [slice(*pair) for pair in zip(self.kv_indptr, self.kv_indptr[1:], strict=False)]
        keys, values = ([dense[span] for span in spans] for dense in (self.k, self.v))
        return oracle_batch(self.q, self.qo_indptr, keys, values, rules)


def check(batch: Batch, out: torch.Tensor, lse: torch.Tensor | None, **rules: Any) -> None:
    """Hold results to the oracle, within what rounding to bf16 explains."""
    reference = batch.oracle(**rules)
    out_tolerance, lse_tolerance = tolerances.attention(reference, BF16, 0.0)
    worst, where = tolerances.largest_excess(out, reference.out, out_tolerance)
    assert worst <= 1, f"out is {worst:.3g} times its tolerance off, {where}"
    if lse is not None:
        worst, where = tolerances.largest_excess(lse, reference.lse, lse_tolerance)
        assert worst <= 1, f"lse is {worst:.3g} times its tolerance off, {where}"
