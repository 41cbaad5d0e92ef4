"""Helpers of the tests: keys and values in a shuffled, poisoned page pool, and comparison with the oracle."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from arch_caps import DType, preference
from rocade._device import place
from rocade._dispatch import absent
from rocade.conformance import oracle, tolerances
from rocade.conformance.cases import DTypes

DTYPE_OF = {torch.float32: DType.FP32, torch.float16: DType.FP16, torch.bfloat16: DType.BF16}
HERE = place(torch.device("cpu"))
BACKENDS = [
    pytest.param(name, marks=[pytest.mark.skipif(bool(absent(name, HERE)), reason=f"{name} is absent")])
    for name in preference("cpu")
]


@dataclass(frozen=True)
class Pages:
    """A page pool `(k, v)`, each `[pages, page_size, heads, dim]`, and the table that finds each request."""

    cache: tuple[torch.Tensor, torch.Tensor]
    indptr: torch.Tensor
    indices: torch.Tensor
    last_page_len: torch.Tensor

    @property
    def table(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The three plan arrays in FlashInfer's order."""
        return self.indptr, self.indices, self.last_page_len


def int32(numbers: Sequence[int]) -> torch.Tensor:
    return torch.tensor(list(numbers), dtype=torch.int32)


def indptr(lengths: Sequence[int]) -> torch.Tensor:
    return int32([sum(lengths[:i]) for i in range(len(lengths) + 1)])


def workspace() -> torch.Tensor:
    return torch.empty(8 << 20, dtype=torch.uint8)


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def put(keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], page_size: int, seed: int = 0) -> Pages:
    """Scatter requests over pages in random order; everything else in the pool is NaN."""
    counts = [-(-k.shape[0] // page_size) for k in keys]
    pages = list(range(sum(counts) + 2))
    random.Random(seed).shuffle(pages)
    pool = [
        torch.full((len(pages), page_size, *x[0].shape[1:]), float("nan"), dtype=x[0].dtype)
        for x in (keys, values)
    ]
    taken = 0
    for k, v, count in zip(keys, values, counts, strict=True):
        for page, first in zip(pages[taken : taken + count], range(0, k.shape[0], page_size), strict=True):
            for cache, source in zip(pool, (k, v), strict=True):
                rows = source[first : first + page_size]
                cache[page, : rows.shape[0]] = rows
        taken += count
    last = [(k.shape[0] - 1) % page_size + 1 if k.shape[0] else 0 for k in keys]
    return Pages((pool[0], pool[1]), indptr(counts), int32(pages[:taken]), int32(last))


def assert_matches(
    result: tuple[torch.Tensor, torch.Tensor], ref: oracle.Reference, q_dtype: torch.dtype
) -> None:
    """Hold (out, lse) to the oracle's answer with the conformance tolerances."""
    kind = DTYPE_OF[q_dtype]
    allowed = tolerances.attention(ref, DTypes(kind, kind, kind), 0.0)
    for name, got, expected, bound in zip(("out", "lse"), result, ref[:2], allowed, strict=True):
        excess, place = tolerances.largest_excess(got, expected, bound)
        assert excess <= 1, f"{name} is {excess:.3g} times its tolerance off, {place}"


def assert_state_close(
    result: tuple[torch.Tensor, torch.Tensor], expected: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Compare two fp32 states that went through different but equivalent roundings."""
    torch.testing.assert_close(result[0], expected[0], rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(result[1], expected[1], rtol=2e-6, atol=4e-6)
