"""Appending to a paged cache with the plain backend: what is written, and what must not be."""

from __future__ import annotations

import pytest
import torch

from rocade.backends import REGISTRY

BACKEND = REGISTRY["torch"]
PAGES, SIZE, HEADS, DIM = 6, 4, 2, 8
INDPTR = torch.tensor([0, 2, 2, 4]).int()
INDICES = torch.tensor([5, 1, 3, 0]).int()


def caches(layout: str, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """NHD views of halves of one 5-D pool."""
    if layout == "NHD":
        pool = torch.zeros(PAGES, 2, SIZE, HEADS, DIM).to(dtype)
        return pool[:, 0], pool[:, 1]
    pool = torch.zeros(PAGES, 2, HEADS, SIZE, DIM).to(dtype)
    return pool[:, 0].transpose(1, 2), pool[:, 1].transpose(1, 2)


def tokens(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, HEADS, DIM), torch.randn(count, HEADS, DIM)


def append(
    batch: list[int], positions: list[int], k: torch.Tensor, v: torch.Tensor, *cache: torch.Tensor
) -> None:
    index = torch.tensor(batch, dtype=torch.int32), torch.tensor(positions, dtype=torch.int32)
    BACKEND.append_paged_kv_cache(k, v, *index, *cache, INDICES, INDPTR)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_tokens_land_in_their_slot_and_nowhere_else(layout: str) -> None:
    k, v = tokens(4)
    cache = caches(layout)
    append([0, 2, 0, 2], [3, 0, 4, 7], k, v, *cache)
    for new, pool in zip((k, v), cache, strict=True):
        want = torch.zeros(PAGES, SIZE, HEADS, DIM)
        want[5, 3], want[3, 0], want[1, 0], want[0, 3] = new
        assert torch.equal(pool, want)


@pytest.mark.parametrize(
    ("batch", "position"),
    [(-1, 0), (3, 0), (-5, 2), (1, 0), (0, 8), (0, -1), (2, 1 << 30)],
    ids=[
        "padding",
        "no such request",
        "negative",
        "no pages",
        "past its pages",
        "before its pages",
        "far away",
    ],
)
def test_tokens_without_a_slot_are_skipped(batch: int, position: int) -> None:
    k, v = tokens(3)
    cache = caches("NHD")
    append([batch, 0, batch], [position, 1, position], k, v, *cache)
    want = torch.zeros(PAGES, SIZE, HEADS, DIM)
    want[5, 1] = k[1]
    assert torch.equal(cache[0], want)


def test_nothing_but_skipped_tokens() -> None:
    cache = caches("NHD")
    for pool in cache:
        pool.fill_(float("nan"))
    append([-1, -1], [0, 0], *tokens(2), *cache)
    assert all(pool.isnan().all() for pool in cache)


@pytest.mark.parametrize("page", [-1, PAGES, 1 << 30])
def test_pages_outside_the_pool_are_skipped(page: int) -> None:
    k, v = tokens(2)
    cache = caches("NHD")
    index = torch.zeros(2, dtype=torch.int32), torch.tensor([0, 4]).int()
    indices = torch.tensor([page, 1]).int()
    BACKEND.append_paged_kv_cache(k, v, *index, *cache, indices, torch.tensor([0, 2]).int())
    want = torch.zeros(PAGES, SIZE, HEADS, DIM)
    want[1, 0] = k[1]
    assert torch.equal(cache[0], want)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz]
)
def test_tokens_are_converted_to_the_cache(dtype: torch.dtype) -> None:
    k, v = tokens(1)
    cache = caches("HND", dtype)
    append([0], [2], k, v, *cache)
    assert torch.equal(cache[0].float()[5, 2], k[0].to(dtype).float())


def test_no_tokens_no_pages() -> None:
    cache = caches("NHD")
    append([], [], *tokens(0), *cache)
    append([0], [0], *tokens(1), *(pool[:0] for pool in cache))
    assert all((pool == 0).all() for pool in cache)
