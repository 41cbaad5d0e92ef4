"""Pages are shared by forks and counted once, and a pool has only so many."""

from __future__ import annotations

import pytest
import torch
from tests.rocade.demo.tiny import CONFIG

from rocade.demo._cache import ContiguousCache, PagedCache


def pool(num_pages: int) -> PagedCache:
    return PagedCache(CONFIG, num_pages=num_pages, page_size=4, dtype=torch.float32)


def test_a_fork_shares_pages_and_grows_by_itself() -> None:
    cache = pool(6)
    prompt = cache.fork()
    cache.extend(prompt, 8)
    a, b = cache.fork(prompt), cache.fork(prompt)
    cache.extend(a, 1)
    cache.extend(b, 5)
    table = cache.arrays([a, b])
    assert table.indptr.tolist() == [0, 3, 7]
    assert table.last_page_len.tolist() == [1, 1]
    pages_a, pages_b = table.indices[:3].tolist(), table.indices[3:].tolist()
    assert pages_a[:2] == pages_b[:2]
    assert len({*pages_a, *pages_b}) == 5
    assert all(array.dtype is torch.int32 for array in table)
    assert [cache.length(s) for s in (prompt, a, b)] == [8, 9, 13]


def test_a_full_last_page_counts_as_full() -> None:
    cache = pool(2)
    sequence = cache.fork()
    cache.extend(sequence, 8)
    assert cache.arrays([sequence]).last_page_len.tolist() == [4]


def test_bytes_count_a_shared_page_once() -> None:
    cache = pool(4)
    prompt = cache.fork()
    cache.extend(prompt, 4)
    forks = [cache.fork(prompt) for _ in range(3)]
    for fork in forks:
        cache.extend(fork, 1)
    page_bytes = 2 * 4 * CONFIG.num_kv_heads * CONFIG.head_dim * 4 * CONFIG.num_layers
    assert cache.bytes_held(forks) == 4 * page_bytes


def test_only_whole_pages_can_be_shared() -> None:
    cache = pool(2)
    prompt = cache.fork()
    cache.extend(prompt, 3)
    with pytest.raises(ValueError, match="whole pages"):
        cache.fork(prompt)


def test_an_exhausted_pool_says_so_and_keeps_its_state() -> None:
    cache = pool(2)
    sequence = cache.fork()
    with pytest.raises(MemoryError, match="2 free pages, 3 are needed"):
        cache.extend(sequence, 9)
    cache.extend(sequence, 8)
    assert cache.length(sequence) == 8


def test_contiguous_rows_land_at_their_request_and_position() -> None:
    cache = ContiguousCache(CONFIG, batch=2, capacity=5, dtype=torch.float32)
    rows = torch.arange(2 * CONFIG.num_kv_heads * CONFIG.head_dim).view(2, CONFIG.num_kv_heads, -1).float()
    cache.append(1, rows, -rows, torch.tensor([1, 0]), torch.tensor([4, 2]))
    assert torch.equal(cache.k[1][1, :, 4], rows[0])
    assert torch.equal(cache.v[1][0, :, 2], -rows[1])
    assert cache.k[1].count_nonzero() == rows.count_nonzero()
    cache.copy_first_to_all(3)
    assert torch.equal(cache.k[1][1, :, 2], rows[1])
    assert torch.equal(cache.k[1][1, :, 4], rows[0])
